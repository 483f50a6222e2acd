import type { Violation } from "./history.ts"
import type { Plan } from "./plan.ts"
import { type Outcome, simulate } from "./simulation.ts"

/** How many runs a shrinking takes at most. */
const maxRuns = 200

/** What of a violation stays the same in a shrunk run: the sentence that is broken. */
const kindOf = ({ oracle }: Violation) => oracle

/**
 * Cuts a failing plan down: takes parts of the faults, then of the operations away, as long as the same sentence stays
 * broken. Delta debugging (Zeller and Hildebrandt, 2002), with halves, quarters, and so on.
 *
 * @param until the real time at which it stops, in milliseconds of `performance.now`
 */
export const shrink = async (failing: Outcome, until: number): Promise<Outcome> => {
  const broken = kindOf(failing.violations[0]!)
  const now = performance.now.bind(performance)
  let best = failing
  let runs = 0

  const isStillBroken = async (plan: Plan) => {
    if (runs++ >= maxRuns || now() > until) return false
    const outcome = await simulate(plan)
    if (!outcome.violations.some((violation) => kindOf(violation) === broken)) return false
    best = outcome
    return true
  }

  const reduce = async (part: "faults" | "operations") => {
    for (let size = Math.ceil(best.plan[part].length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
      for (let at = 0; at < best.plan[part].length;) {
        const rest = [...best.plan[part].slice(0, at), ...best.plan[part].slice(at + size)]
        if (!(await isStillBroken({ ...best.plan, [part]: rest }))) at += size
      }
    }
  }

  await isStillBroken({ ...best.plan, faults: [] })
  await reduce("faults")
  await reduce("operations")
  const last = Math.max(
    0,
    ...best.plan.operations.map(({ at }) => at),
    ...best.plan.faults.map(({ at, millis }) => at + millis),
  )
  await isStillBroken({ ...best.plan, millis: last + 1_000 })
  return best
}
