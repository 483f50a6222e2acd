import type { Workflow } from "../domain/jobs/WorkflowSettings.ts"
import { tenantGroup } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, table } from "./output.ts"

const one = { args: { workflow: "workflow" } } as const

const rateOf = ({ rate }: Workflow) => rate && `${rate.limit} in ${rate.window_seconds} s`

export const workflows = tenantGroup("workflows", "Limits of workflows", [
  op("workflows.set", {
    ...one,
    examples: [`workflows set mail --concurrency-per-key 1 --rate '{"limit":10,"window_seconds":1}'`],
  }),
  op("workflows.list", {
    show: ({ workflows }) =>
      columns(workflows, {
        WORKFLOW: "workflow",
        "AT ONCE": "concurrency",
        "PER KEY": "concurrency_per_key",
        RATE: rateOf,
      }),
  }),
  op("workflows.get", {
    ...one,
    about: "Show the limits of a workflow",
    show: (found) =>
      table(
        ["FIELD", "VALUE"],
        [
          ["at once", found.concurrency],
          ["at once per key", found.concurrency_per_key],
          ["rate", rateOf(found)],
          ["retry", found.retry],
          ["expires in", found.expires_in_seconds && `${found.expires_in_seconds} s`],
          ["changed", found.updated_at],
        ],
      ),
  }),
  op("workflows.delete", one),
])
