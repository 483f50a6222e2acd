import { Effect, Redacted, Struct } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { type Alert, CreateAlert, UpdateAlert } from "../domain/alerts/Alert.ts"
import type { Client } from "../sdk/client.ts"
import { call, callPages, resolveOrg } from "./call.ts"
import { given, orgFlag, page, payloadFlags } from "./flags.ts"
import { columns, CommandFailed, plain, usage } from "./output.ts"
import { readSecret } from "./secretInput.ts"

const owner = {
  org: orgFlag,
  allOrgs: Flag.Boolean("all-orgs").pipe(
    Flag.withDescription("Those of the administrator, which watch every org"),
    Flag.withDefault(false),
  ),
}
const one = { alert: Argument.String("alert").pipe(Argument.withDescription("The alert's id")), ...owner }

/** The id of the org of a command; "" for the administrator's alerts. */
const ownerOf = ({ allOrgs, org }: { readonly org: Parameters<typeof resolveOrg>[0]; readonly allOrgs: boolean }) =>
  allOrgs ? Effect.succeed("") : resolveOrg(org)
/** The operations on an owner's alerts. Those of the administrator's take the same requests, without an org. */
const alertsOf = (client: Client, orgId: string) =>
  orgId === "" ? (client.serviceAlerts as unknown as Client["alerts"]) : client.alerts

const alertTable = (alerts: ReadonlyArray<Alert>) =>
  columns(alerts, {
    ALERT: "alertId",
    NAME: "name",
    WATCHES: "condition",
    THRESHOLD: "threshold",
    TELLS: ({ receiver, target }) => `${target} ${receiver}`,
    ACTIVE: "active",
    "WRONG SINCE": "firingSince",
    "TARGET FAILS SINCE": "failingSince",
  })

const list = Command.make(
  "list",
  { ...owner, ...page },
  Effect.fnUntraced(function* ({ allOrgs, org, ...page }) {
    const orgId = yield* ownerOf({ allOrgs, org })
    yield* callPages(
      page,
      (client, query) => alertsOf(client, orgId).list({ params: { orgId }, query }),
      ({ alerts }) => alertTable(alerts),
    )
  }),
).pipe(Command.withDescription("List alerts with their state, oldest first"))

const create = Command.make(
  "create",
  {
    name: Argument.String("name").pipe(Argument.withDescription("What messages call it")),
    ...owner,
    condition: Flag.Literals("condition", CreateAlert.fields.condition.literals).pipe(
      Flag.withDescription("What it watches"),
    ),
    target: Flag.Literals("target", CreateAlert.fields.target.literals).pipe(Flag.withDescription("Where it is told")),
    ...payloadFlags(Struct.pick(CreateAlert.fields, ["threshold", "quietMinutes"])),
  },
  Effect.fnUntraced(function* ({ allOrgs, condition, name, org, target, ...settings }) {
    const orgId = yield* ownerOf({ allOrgs, org })
    const url = yield* readSecret("The url of the target", "GATEHOUSE_ALERT_URL")
    if (url === undefined) {
      return yield* usage("The url of the target is missing. Pass it on standard input or in GATEHOUSE_ALERT_URL")
    }
    const payload = { name, condition, target, url: Redacted.value(url), ...given(settings) }
    yield* call(
      (client) => alertsOf(client, orgId).create({ params: { orgId }, payload }),
      ({ alertId, signingSecret }) => ({
        out: alertId,
        note:
          signingSecret === undefined
            ? `The alert is created. Test it: gatehouse alerts test ${alertId} ${allOrgs ? "--all-orgs" : `--org ${orgId}`}`
            : `The alert is created. This is its signing secret, which is shown only once: ${plain(signingSecret)}`,
      }),
    )
  }),
).pipe(
  Command.withDescription("Create an alert; reads the url of its target from GATEHOUSE_ALERT_URL or standard input"),
  Command.withExamples([
    {
      command: `printf %s "$SLACK_URL" | gatehouse alerts create "Webhooks fail" --condition endpoint_failing --threshold 30 --target slack`,
    },
  ]),
)

const update = Command.make(
  "update",
  { ...one, ...payloadFlags(UpdateAlert.fields) },
  Effect.fnUntraced(function* ({ alert: id, allOrgs, org, ...settings }) {
    const orgId = yield* ownerOf({ allOrgs, org })
    yield* call(
      (client) => alertsOf(client, orgId).update({ params: { orgId, id }, payload: given(settings) }),
      (alert) => ({ out: alertTable([alert]), note: "The alert is changed." }),
    )
  }),
).pipe(Command.withDescription("Change an alert, or turn it on or off"))

const remove = Command.make(
  "delete",
  one,
  Effect.fnUntraced(function* ({ alert: id, ...flags }) {
    const orgId = yield* ownerOf(flags)
    yield* call(
      (client) => alertsOf(client, orgId).remove({ params: { orgId, id } }),
      () => ({ out: id, note: "The alert is deleted." }),
    )
  }),
).pipe(Command.withDescription("Delete an alert"))

const test = Command.make(
  "test",
  one,
  Effect.fnUntraced(function* ({ alert: id, ...flags }) {
    const orgId = yield* ownerOf(flags)
    const { error } = yield* call(
      (client) => alertsOf(client, orgId).test({ params: { orgId, id }, payload: undefined }),
      ({ error }) => ({ out: "", note: error === null ? "The target was reached." : "" }),
    )
    if (error !== null) return yield* new CommandFailed({ message: `The target was not reached: ${plain(error)}` })
  }),
).pipe(Command.withDescription("Send a test to the target of an alert"))

/** Lists, creates, changes, deletes and tests alerts. */
export const alerts = Command.make("alerts").pipe(
  Command.withDescription("Alerts: who is told when something is wrong"),
  Command.withSubcommands([list, create, update, remove, test]),
)
