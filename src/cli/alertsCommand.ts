import { Effect, Redacted } from "effect"
import { Command } from "effect/cli"
import type { Alert } from "../domain/alerts/Alert.ts"
import { op } from "./operation.ts"
import { columns, failure, plain, usage } from "./output.ts"
import { readSecret } from "./secretInput.ts"
import { group } from "./flags.ts"

const ofAllOrgs = "serviceAlerts"
const one = { args: { alert: "id" }, ofAllOrgs } as const

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

export const alerts = group("alerts", "Alerts: who is notified when something is wrong", [
  op("alerts.list", {
    ofAllOrgs,
    about: "List alerts with their state, oldest first",
    show: ({ alerts }) => alertTable(alerts),
  }),
  op("alerts.create", {
    args: { name: "name" },
    ofAllOrgs,
    about: "Create an alert; reads the url of its target from GATEHOUSE_ALERT_URL or standard input",
    omit: ["url"],
    run: (send, fields) =>
      Effect.flatMap(readSecret("The url of the target", "GATEHOUSE_ALERT_URL"), (url) =>
        url === undefined
          ? usage("The url of the target is missing. Pass it on standard input or in GATEHOUSE_ALERT_URL")
          : send({ ...fields, url: Redacted.value(url) }),
      ),
    show: ({ alertId, orgId, signingSecret }) => ({
      out: alertId,
      note:
        signingSecret === undefined
          ? `The alert is created. Test it: gatehouse alerts test ${alertId} ${orgId === null ? "--all-orgs" : `--org ${orgId}`}`
          : `The alert is created. This is its signing secret, which is shown only once: ${plain(signingSecret)}`,
    }),
  }).pipe(
    Command.withExamples([
      {
        command: `printf %s "$SLACK_URL" | gatehouse alerts create "Webhooks fail" --condition endpoint_failing --threshold 30 --target slack`,
      },
    ]),
  ),
  op("alerts.update", {
    ...one,
    about: "Change an alert, or turn it on or off",
    show: (alert) => ({ out: alertTable([alert]), note: "The alert is changed." }),
  }),
  op("alerts.remove", {
    ...one,
    about: "Delete an alert",
    show: (_, { id }) => ({ out: id, note: "The alert is deleted." }),
  }),
  op("alerts.test", {
    ...one,
    about: "Send a test to the target of an alert",
    run: (send, fields) =>
      Effect.flatMap(send(fields), ({ error }) =>
        error === null ? Effect.void : failure(`The target was not reached: ${plain(error)}`),
      ),
    show: ({ error }) => (error === null ? "The target was reached." : ""),
  }),
])
