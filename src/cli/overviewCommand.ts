import { Command } from "effect/cli"
import { counted } from "../domain/plural.ts"
import type { Overview } from "../domain/activity/Activity.ts"
import { inBytes } from "../infrastructure/checks/Check.ts"
import { op } from "./operation.ts"
import { columns, table } from "./output.ts"

const measuredNames = ["requests", "validations", "attempts", "database"] as const

const sum = (counts: ReadonlyArray<number>) => counts.reduce((all, one) => all + one, 0)

/** What happened in the whole range, in a line. */
const summary = ({ deliveries, jobs, validations }: Overview) => {
  const delivered = sum(deliveries.map((one) => one.delivered))
  const attempts = delivered + sum(deliveries.map(({ failed, retried }) => failed + retried))
  const failed = attempts === 0 ? "" : ` (${Math.round((100 * (attempts - delivered)) / attempts)} % failed)`
  const validated = sum(
    validations.map(({ forbidden, invalid, limited, valid }) => valid + invalid + forbidden + limited),
  )
  const ended = sum(jobs.map(({ canceled, completed, failed }) => completed + failed + canceled))
  const others = [counted(validated, "validation"), counted(ended, "finished job")]
  return `Together ${[counted(attempts, "attempt") + failed, ...others].join(", ")}`
}

const output = (overview: Overview) => ({
  out: table(
    [
      "AT",
      "DELIVERED",
      "RETRIED",
      "FAILED",
      "VALID",
      "INVALID",
      "FORBIDDEN",
      "LIMITED",
      "JOBS",
      "JOBS FAILED",
      "JOBS CANCELED",
    ],
    overview.deliveries.map(({ at, delivered, failed, retried }, i) => {
      const { forbidden, invalid, limited, valid } = overview.validations[i]!
      const jobs = overview.jobs[i]!
      const validations = [valid, invalid, forbidden, limited]
      return [at, delivered, retried, failed, ...validations, jobs.completed, jobs.failed, jobs.canceled]
    }),
  ),
  note: [
    summary(overview),
    [
      `Backlog ${overview.backlog}, open sweeps ${overview.sweeps}, replicas ${overview.replicas}`,
      ...(overview.oldestDueAt === null ? [] : [`oldest due since ${overview.oldestDueAt.toJSON()}`]),
    ].join(", "),
  ].join("\n"),
})

/** Shows what happens in the service. */
export const overview = op("activity.overview", {
  about: "Deliveries, validations and jobs by minute, or with --every by hour or day, and the backlog",
  defaults: { every: "minute" },
  show: output,
}).pipe(
  Command.withSubcommands([
    op("activity.failing", {
      show: ({ endpoints }) =>
        columns(endpoints, {
          ENDPOINT: "endpointId",
          ORG: "orgId",
          URL: ({ host, path }) => `${host}${path}`,
          DESCRIPTION: "description",
          ACTIVE: "active",
          FAILED: "failedAttempts",
          "FAILING SINCE": "failingSince",
          "LAST FAILURE": "lastFailureAt",
          WHY: ({ lastFailure, lastStatus }) => lastFailure ?? lastStatus,
        }),
    }),
    op("activity.activeOrgs", {
      name: "orgs",
      defaults: { by: "attempts" },
      show: ({ orgs }) =>
        columns(orgs, {
          ORG: "orgId",
          NAME: "name",
          ATTEMPTS: "attempts",
          FAILED: "failedAttempts",
          VALIDATIONS: "validations",
          JOBS: "jobs",
        }),
    }),
    op("activity.replicas", {
      about: "How fast each replica and the database were in the last five minutes",
      show: ({ database, replicas }) => ({
        out: table(
          ["REPLICA", "STARTED", "MEASURED", "A MINUTE", "P50 MS", "P99 MS"],
          replicas.flatMap(({ figures, replicaId, startedAt }) =>
            measuredNames.map((name) => {
              const { p50Millis, p99Millis, perMinute } = figures?.[name] ?? {}
              return [replicaId, startedAt, name, perMinute, p50Millis, p99Millis]
            }),
          ),
        ),
        note: [
          `Database ${database.writable ? "writable" : "read-only"}, ${database.bytes === null ? "of unknown size" : inBytes(database.bytes)}`,
          ...replicas.flatMap(({ figures, replicaId }) =>
            figures === null
              ? []
              : [
                  `${replicaId} has ${counted(figures.databaseInFlight, "operation")} in flight for ${counted(figures.databaseConnections, "connection")}`,
                ],
          ),
        ].join("\n"),
      }),
    }),
  ]),
)
