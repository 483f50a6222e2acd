import type { Outcome } from "./simulation.ts"

/** How many lines a story has at most. */
const maxLines = 40

/** What happened in a failing run, for a person: what was broken, and the last that happened before. */
export const story = ({ log, plan, violations }: Outcome): string => {
  const [first] = violations
  const head = [
    `npm run sim -- --seed=${plan.seed}: ${plan.operations.length} operations and ${plan.faults.length} faults are enough`,
    ...violations.slice(0, 5).map(({ at, oracle, what }) => `  ${oracle}: ${what} (at ${(at / 1000).toFixed(3)} s)`),
    ...(violations.length > 5 ? [`  and ${violations.length - 5} more`] : []),
    "",
  ]
  const until = first === undefined || !Number.isFinite(first.at) ? Infinity : first.at
  const told = log.filter(({ at }) => at <= until).slice(head.length - maxLines)
  return [
    ...head,
    ...told.map(({ at, what, who }) => `${(at / 1000).toFixed(3).padStart(9)}  ${who}  ${what}`.slice(0, 200)),
  ].join("\n")
}
