import type { Workflow } from "../domain/jobs/WorkflowSettings.ts"
import { tenantGroup } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, table } from "./output.ts"

const one = { args: { workflow: "workflow" } } as const

const set = op("workflows.set", {
  ...one,
  about: "Set all limits of a workflow; what is not named has none",
  examples: [`workflows set mail --concurrency-per-key 1 --rate '{"limit":10,"window_seconds":1}'`],
})

const rateOf = ({ rate }: Workflow) => rate && `${rate.limit} in ${rate.window_seconds} s`

const list = op("workflows.list", {
  show: ({ workflows }) =>
    columns(workflows, {
      WORKFLOW: "workflow",
      "AT ONCE": "concurrency",
      "PER KEY": "concurrency_per_key",
      RATE: rateOf,
    }),
})

const get = op("workflows.get", {
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
})

const remove = op("workflows.delete", one)

export const workflows = tenantGroup("workflows", "Limits of workflows", [set, list, get, remove])
