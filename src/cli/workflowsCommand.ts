import { Struct } from "effect"
import { Argument, Command } from "effect/cli"
import { SetWorkflow, type Workflow } from "../domain/jobs/Workflows.ts"
import { call } from "./call.ts"
import { actFor, actForFlag, given, payloadFlags } from "./flags.ts"
import { said, table } from "./output.ts"

const workflow = Argument.String("workflow").pipe(Argument.withDescription("The name of the kind of work"))

const set = Command.make(
  "set",
  { workflow, ...payloadFlags(Struct.omit(SetWorkflow.fields, ["workflow"])) },
  ({ workflow, ...flags }) =>
    call((gatehouse) => gatehouse.workflows.set({ payload: { workflow, ...given(flags) } }), said),
).pipe(
  Command.withDescription("Set all limits of a workflow; what is not named has none"),
  Command.withExamples([
    { command: `gatehouse workflows set mail --concurrency-per-key 1 --rate '{"limit":10,"window_seconds":1}'` },
  ]),
)

const rateOf = ({ rate }: Workflow) => rate && `${rate.limit} in ${rate.window_seconds} s`

const list = Command.make("list", {}, () =>
  call(
    (gatehouse) => gatehouse.workflows.list({ payload: {} }),
    ({ workflows }) => ({
      out: table(
        ["WORKFLOW", "AT ONCE", "PER KEY", "RATE"],
        workflows.map((one) => [one.workflow, one.concurrency, one.concurrency_per_key, rateOf(one)]),
      ),
    }),
  ),
).pipe(Command.withDescription("List the workflows that have limits"))

const get = Command.make("get", { workflow }, (payload) =>
  call(
    (gatehouse) => gatehouse.workflows.get({ payload }),
    (found) => ({
      out: table(
        ["FIELD", "VALUE"],
        [
          ["at once", found.concurrency],
          ["at once per key", found.concurrency_per_key],
          ["rate", rateOf(found)],
          ["retry", found.retry && JSON.stringify(found.retry)],
          ["expires in", found.expires_in_seconds && `${found.expires_in_seconds} s`],
          ["changed", found.updated_at],
        ],
      ),
    }),
  ),
).pipe(Command.withDescription("Show the limits of a workflow"))

const remove = Command.make("delete", { workflow }, (payload) =>
  call((gatehouse) => gatehouse.workflows.delete({ payload }), said),
).pipe(Command.withDescription("Delete the limits of a workflow; its jobs stay"))

/** Limits what runs at once. */
export const workflows = Command.make("workflows").pipe(
  Command.withDescription("Limits of workflows: of the API key, or of --org"),
  Command.withSharedFlags(actForFlag),
  Command.withSubcommands([set, list, get, remove]),
  actFor,
)
