import { Struct } from "effect"
import { Command, Flag } from "effect/cli"
import { counted } from "../domain/counted.ts"
import { measureNames, type Overview, overviewQuery } from "../domain/activity/Activity.ts"
import { inBytes } from "../infrastructure/checks/Check.ts"
import { call, callPages } from "./call.ts"
import { given, page, payloadFlags, time } from "./flags.ts"
import { more, table } from "./output.ts"

const measuredNames = ["requests", "validations", "attempts", "database"] as const

const every = Flag.Literals("every", ["minute", "hour", "day"]).pipe(
  Flag.withDescription("The length of an interval (default: minute, for the last hour)"),
  Flag.withDefault("minute" as const),
)
const org = Flag.String("org").pipe(
  Flag.withDescription("The id of an org (default: every org, or the org of the key)"),
  Flag.optional,
)

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

const since = time("since").pipe(
  Flag.withDescription("The start of the range: 30 days ago at most (default: 24 hours ago)"),
  Flag.optional,
)

const failing = Command.make("failing", { ...page, since }, ({ cursor, limit, since }) =>
  call(
    (gatehouse) => gatehouse.activity.failing({ query: { limit, ...given({ cursor, since }) } }),
    ({ endpoints, nextCursor }) => ({
      out: table(
        ["ENDPOINT", "ORG", "URL", "DESCRIPTION", "ACTIVE", "FAILED", "FAILING SINCE", "LAST FAILURE", "WHY"],
        endpoints.map((one) => [
          one.endpointId,
          one.orgId,
          `${one.host}${one.path}`,
          one.description,
          one.active,
          one.failedAttempts,
          one.failingSince,
          one.lastFailureAt,
          one.lastFailure ?? one.lastStatus,
        ]),
      ),
      note: more(nextCursor),
    }),
  ),
).pipe(Command.withDescription("List the endpoints with the most failed attempts since a time"))

const by = Flag.Literals("by", measureNames).pipe(
  Flag.withDescription("What the orgs are ranked by (default: attempts)"),
  Flag.withDefault("attempts" as const),
)

const orgs = Command.make("orgs", { ...page, by, since }, ({ by, since, ...page }) =>
  callPages(
    page,
    (gatehouse, query) => gatehouse.activity.activeOrgs({ query: { ...query, by, ...given({ since }) } }),
    ({ orgs }) =>
      table(
        ["ORG", "NAME", "ATTEMPTS", "FAILED", "VALIDATIONS", "JOBS"],
        orgs.map((one) => [one.orgId, one.name, one.attempts, one.failedAttempts, one.validations, one.jobs]),
      ),
  ),
).pipe(Command.withDescription("List the orgs that use most since a time"))

const replicas = Command.make("replicas", {}, () =>
  call(
    (gatehouse) => gatehouse.activity.replicas(),
    ({ database, replicas }) => ({
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
                `${replicaId} has ${figures.databaseInFlight} operations in flight for ${figures.databaseConnections} connections`,
              ],
        ),
      ].join("\n"),
    }),
  ),
).pipe(Command.withDescription("How fast each replica and the database were in the last five minutes"))

const range = payloadFlags(Struct.pick(overviewQuery, ["from", "to"]))

/** Shows what happens in the service. */
export const overview = Command.make("overview", { every, org, ...range }, ({ every, org, ...range }) =>
  call((gatehouse) => gatehouse.activity.overview({ query: { every, ...given({ orgId: org, ...range }) } }), output),
).pipe(
  Command.withDescription("Deliveries, validations and jobs by minute, hour or day, and the backlog"),
  Command.withSubcommands([failing, orgs, replicas]),
)
