import { Effect } from "effect"
import type { Erasure, Sql } from "./erasureSteps.ts"
import { orgSteps } from "./eraseOrg.ts"
import { projectSteps } from "./eraseProject.ts"

/** The position of an erasure: whether the pass has found rows, the step, and the last row of the step. */
const positionForm = /^([+-])(\w+):(.*)$/s

/**
 * Erases the next rows, at most `limit`, in a transaction. A pass goes through all steps. Returns where to continue; or
 * `null` after a pass, with whether the pass found rows.
 */
export const eraseBatch = Effect.fnUntraced(function* (sql: Sql, erasure: Erasure, position: string, limit: number) {
  const steps = erasure.projectId === null ? orgSteps : projectSteps
  const [, mark = "-", name = "", from = ""] = positionForm.exec(position) ?? []
  const first = Math.max(
    0,
    steps.findIndex(([step]) => step === name),
  )
  let hasFound = mark === "+"
  let rows = 0
  for (const [index, [step, run]] of steps.entries()) {
    if (index < first) continue
    let after = index === first ? from : ""
    while (true) {
      if (rows >= limit) return { rows, hasFound, position: `${hasFound ? "+" : "-"}${step}:${after}` }
      const { last, rows: read } = yield* run(sql, erasure, after, limit - rows)
      rows += read
      hasFound ||= read > 0
      if (last === null) break
      after = last
      // A step that reads more rows than it erases ends the batch, too.
      if (read === 0) return { rows, hasFound, position: `${hasFound ? "+" : "-"}${step}:${after}` }
    }
  }
  return { rows, hasFound, position: null }
})
