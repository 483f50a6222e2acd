import type { CornerName } from "./plan.ts"

/** A fault that is planted in a copy of the source, to see whether the simulation finds it. */
export interface Bug {
  readonly name: string
  /** What someone could have thought, or forgotten. */
  readonly about: string
  /** Replacements of a text that stands once in a file of `src`. */
  readonly edits: ReadonlyArray<readonly [file: string, from: string, to: string]>
  /** The pair of writes that shows it on real locks, of `test/contract/races.ts`; else it shows in simulation. */
  readonly race?: string
  /** The corner whose seeds hunt it; other seeds may find it earlier. Without one, all seeds do. */
  readonly corner?: CornerName
}

const keyCache = "infrastructure/keys/KeyCache.ts"
const apiKeys = "infrastructure/keys/apiKeysSql.ts"
const keyCounters = "infrastructure/keys/keyCountersSql.ts"
const keyCounter = "domain/keys/keyLimits.ts"
const leasedQuotas = "domain/keys/LeasedQuotas.ts"
const reportJobs = "infrastructure/jobs/reportJobs.ts"
const jobRepository = "infrastructure/jobs/jobsSql.ts"
const retryJobs = "infrastructure/jobs/retryJobs.ts"
const limitedClaims = "infrastructure/jobs/claimLimitedJobs.ts"
const jobEnd = "domain/jobs/JobEnd.ts"
const schedules = "infrastructure/jobs/jobSchedulesSql.ts"
const record = "infrastructure/webhooks/recordAttempts.ts"
const claim = "infrastructure/webhooks/claimDeliveries.ts"
const insert = "infrastructure/queue/insertEvents.ts"
const endpoints = "infrastructure/webhooks/webhookEndpointsSql.ts"
const slots = "domain/webhooks/Slots.ts"
const retryDecision = "domain/webhooks/RetryDecision.ts"
const idempotency = "infrastructure/idempotency/idempotencySql.ts"
const createJobs = "infrastructure/jobs/createJobs.ts"
const erase = "infrastructure/sweeps/erase.ts"

export const bugs: ReadonlyArray<Bug> = [
  // Keys
  {
    name: "memory answers after a pause",
    corner: "keys",
    about: "The age of the last proof does not count, so a replica that stood still answers from memory.",
    edits: [[keyCache, "return nowMillis() - provenAt < maxProofAgeMillis ? grant : vouched(grant)", "return grant"]],
  },
  {
    name: "a slow look-up survives a revocation",
    corner: "keys",
    about: "A key that was read before its deletion is put into memory after it.",
    edits: [[keyCache, "if (isConnected && epoch === startEpoch) found.forEach", "if (isConnected) found.forEach"]],
  },
  {
    name: "memory survives a lost connection",
    corner: "keys",
    about: "What was revoked while nothing was heard stays in memory.",
    edits: [[keyCache, "    memory.clear()\n    // An empty memory holds no key that was revoked.\n", ""]],
  },
  {
    name: "a deletion notifies nobody",
    corner: "keys",
    about: "Only the replica that deletes a key forgets it.",
    edits: [
      [
        apiKeys,
        'RETURNING org_id AS "orgId", pg_notify(${revocationChannel}, id)`,\n          )\n          if (counter',
        'RETURNING org_id AS "orgId"`,\n          )\n          if (counter',
      ],
    ],
  },
  {
    name: "a change notifies nobody",
    corner: "keys",
    about: "Only the replica that disables a key knows of it.",
    edits: [
      [
        apiKeys,
        "const changed = yield* notify(orgId, keyId, isLimitChange ? counterId : undefined)",
        "const changed = [keyId]",
      ],
    ],
  },
  {
    name: "the keys of a deleted org stay in memory",
    corner: "owners",
    about: "The news of a deleted org is not passed on to the memory of keys.",
    edits: [[keyCache, "    memory.removeOwner(orgId, projectId)\n", ""]],
  },
  {
    name: "the keys of a deleted project stay valid",
    corner: "owners",
    about: "A look-up does not ask whether the project of a key exists.",
    edits: [
      [apiKeys, "AND (${keys}.project_id IS NULL OR EXISTS (SELECT FROM projects WHERE id = ${keys}.project_id))", ""],
      [keyCache, "    memory.removeOwner(orgId, projectId)\n", ""],
    ],
  },
  {
    name: "a rotation forgets the end of the old key",
    corner: "keys",
    about: "The old key stays valid after its grace period.",
    edits: [[apiKeys, "expires_at = least(expires_at, ${date(oldKeyUntil)}::timestamptz)", "expires_at = expires_at"]],
  },
  {
    name: "a counter goes with its first key",
    corner: "limits",
    about: "The deletion of a rotated key deletes the counter that its replacement needs.",
    edits: [
      [
        apiKeys,
        "        AND NOT EXISTS (SELECT FROM api_keys WHERE ${isOfOrg(sql, orgId)} AND counter_id = ${counterId})\n",
        "",
      ],
    ],
  },
  {
    name: "leased units are not written",
    corner: "limits",
    about: "A lease is given out, and the counter keeps its units.",
    edits: [[keyCounters, "if (answers.size > 0) yield*", "if (answers.size > 1_000) yield*"]],
  },
  {
    name: "an idle quota is returned and kept",
    corner: "limits",
    about: "Units that go back to the database are used here, too.",
    edits: [[leasedQuotas, "  held.quota = null\n  held.units = 0\n  return unused", "  return unused"]],
  },
  {
    name: "unused units are put back at any time",
    corner: "limits",
    about: "Units of a quota from before a change of the limits count for the new ones.",
    edits: [
      [
        keyCounter,
        "if (quota.version !== counter.version || quota.units === 0) return counter",
        "if (quota.units === 0) return counter",
      ],
      [keyCounter, "credits === null || credits.since !== quota.creditsSince", "credits === null"],
    ],
  },
  {
    name: "credits are never taken",
    corner: "limits",
    about: "A use takes of the rate limit alone.",
    edits: [
      [
        keyCounter,
        "credits: counter.credits && { ...counter.credits, remaining: counter.credits.remaining - units },",
        "credits: counter.credits,",
      ],
    ],
  },

  // Idempotency
  {
    name: "the same key runs twice",
    corner: "once",
    about: "The record of an idempotency key is not read.",
    edits: [
      [idempotency, "if (found !== undefined) return", "if (found !== undefined && found.record === key) return"],
    ],
  },
  {
    name: "a record without its operation",
    corner: "once",
    about: "The operation and its record are two transactions.",
    edits: [[idempotency, "        }).pipe(sql.withTransaction, orUnavailable),", "        }).pipe(orUnavailable),"]],
  },

  // Jobs
  {
    name: "a late worker completes a job",
    corner: "jobs",
    about: "The fence is not compared.",
    edits: [
      [
        jobEnd,
        'if (attempt !== undefined && (job.status !== "running" || job.attempt !== attempt)) {',
        'if (attempt !== undefined && job.status !== "running") {',
      ],
    ],
  },
  {
    name: "a late worker keeps a lease",
    corner: "jobs",
    about: "A heartbeat of another attempt extends the lease.",
    edits: [
      [
        jobRepository,
        " AND attempt = coalesce(${attempt ?? null}::int, attempt)",
        " AND coalesce(${attempt ?? null}::int, 0) >= 0",
      ],
    ],
  },
  {
    name: "a report overwrites a change in between",
    corner: "jobs",
    about: "What was read before a report is not compared with what is there.",
    edits: [
      [
        reportJobs,
        "AND jobs.status = asked.was_status AND jobs.attempt = asked.was_attempt",
        "AND asked.was_status IS NOT NULL AND asked.was_attempt IS NOT NULL",
      ],
      [reportJobs, "AND date_trunc('milliseconds', jobs.lease_expires_at) IS NOT DISTINCT FROM asked.was_lease", ""],
    ],
  },
  {
    name: "the first receiver gets nothing",
    corner: "jobs",
    about: "The deliveries of a finished job begin with the second endpoint.",
    edits: [[reportJobs, "to.slice(0, inline)", "to.slice(1, inline)"]],
  },
  {
    name: "an expired lease is forgotten",
    corner: "jobs",
    about: "A job with one attempt left is neither queued nor failed.",
    edits: [
      [jobRepository, "FROM taken WHERE attempt < max_attempts\n", "FROM taken WHERE attempt < max_attempts - 1\n"],
    ],
  },
  {
    name: "a completion again makes another event",
    corner: "jobs",
    about: "The same outcome again is written again.",
    edits: [
      [
        jobEnd,
        "  if (job.status === outcome.status) return Result.succeed(unchanged)\n",
        "  if (job.status === outcome.status) return Result.succeed(finish(job, outcome))\n",
      ],
    ],
  },
  {
    name: "a finished job is claimed",
    corner: "jobs",
    about: "A job that ends stays in the queue.",
    edits: [
      [
        reportJobs,
        "DELETE FROM jobs USING asked WHERE",
        "UPDATE jobs SET status = 'queued', lease_expires_at = NULL FROM asked WHERE",
      ],
    ],
  },

  // Schedules
  {
    name: "a schedule does not move on",
    corner: "schedules",
    about: "A run leaves the schedule due.",
    edits: [[schedules, "SET next_at = ran.next_at,", "SET next_at = job_schedules.next_at,"]],
  },
  {
    name: "a run is forgotten",
    corner: "schedules",
    about: "The next run is searched from a minute later.",
    edits: [[schedules, "nextRun(cron, timezone, now)", "nextRun(cron, timezone, DateTime.add(now, { minutes: 1 }))"]],
  },
  {
    name: "skip does not skip",
    corner: "schedules",
    about: "A schedule creates a job while its last one is open.",
    edits: [[schedules, "return new Set(blocked.map(({ id }) => id))", "return new Set<string>()"]],
  },

  // Deliveries
  {
    name: "a retry loses its place",
    corner: "ordered",
    about: "In an ordered lane a failed delivery lets the later ones pass.",
    edits: [
      [
        record,
        "due_at = CASE WHEN held.ordered THEN p.due_at ELSE held.next_at END, backlogged = held.ordered",
        "due_at = held.next_at, backlogged = held.ordered",
      ],
      [record, "lease_until = CASE WHEN held.ordered THEN held.next_at END", "lease_until = NULL"],
    ],
  },
  {
    name: "an ordered lane sends side by side",
    corner: "ordered",
    about: "The cap of an ordered lane is that of the others.",
    edits: [[slots, "(lane.ordered ? 1 : laneCap + lane.batchMax)", "laneCap"]],
  },
  {
    name: "an ordered lane has gaps",
    corner: "ordered",
    about: "A claim takes the free deliveries behind one that another replica has.",
    edits: [[claim, ") AS head WHERE has_no_gap`", ") AS head WHERE has_no_gap IS NOT NULL`"]],
  },
  {
    name: "a failed delivery is given up",
    corner: "deliveries",
    about: "A failed attempt counts as the last one.",
    edits: [[retryDecision, "  if (wait === undefined) return", "  if (wait === undefined || status === 503) return"]],
  },
  {
    name: "an error counts as delivered",
    corner: "deliveries",
    about: "Every complete answer counts as a success.",
    edits: [
      [
        retryDecision,
        "status !== null && status >= 200 && status < 300",
        "status !== null && status >= 200 && status < 600",
      ],
    ],
  },
  {
    name: "an inactive endpoint keeps its queue",
    corner: "deliveries",
    about: "A 410 deactivates the endpoint, and its other deliveries stay pending.",
    edits: [[record, "    yield* cancelLanes(sql, random, ended, now)\n", "    void ended\n"]],
  },
  {
    name: "a deleted endpoint keeps its queue",
    corner: "endpoints",
    about: "The deletion of an endpoint ends none of its deliveries.",
    edits: [[endpoints, "  yield* cancelLanes(sql, random, removed, now)\n", ""]],
  },
  {
    name: "a full lane loses a delivery",
    corner: "deliveries",
    about: "A delivery behind a backlog is not queued.",
    edits: [
      [
        insert,
        "bytes, at, at FROM places ORDER BY n",
        "bytes, at, at FROM places WHERE NOT backlogged OR bytes % 7 > 0 ORDER BY n",
      ],
    ],
  },
  {
    name: "a lease is shorter than an attempt",
    corner: "deliveries",
    about: "Another replica sends what is being sent to a slow receiver.",
    edits: [
      [
        "infrastructure/webhooks/DeliveryWorker.ts",
        "Duration.sum(Duration.times(attemptTimeout, 3), Duration.seconds(5))",
        "Duration.sum(Duration.times(attemptTimeout, 0), Duration.seconds(5))",
      ],
    ],
  },
  {
    name: "a record is not fenced",
    corner: "deliveries",
    about: "A worker whose lease ran out records over the one that has the delivery now.",
    edits: [[record, " AND p.delivery_id = made.id AND p.claim_id = made.claim_id", " AND p.delivery_id = made.id"]],
  },
  {
    name: "a delivery that is sent again loses an attempt",
    corner: "deliveries",
    about: "The last attempt of a delivery that had ended is forgotten when it is pending again.",
    edits: [
      [
        "infrastructure/webhooks/deliveryLogSql.ts",
        "FROM gone WHERE attempt_started_at IS NOT NULL",
        "FROM gone WHERE attempts > 1",
      ],
    ],
  },
  {
    name: "an event with the same key again",
    corner: "once",
    about: "A publish with a known idempotency key makes another event.",
    edits: [
      [
        "infrastructure/webhooks/eventsSql.ts",
        "SELECT org_id, key, id FROM asked WHERE key IS NOT NULL ORDER BY",
        "SELECT org_id, id, id FROM asked WHERE key IS NOT NULL ORDER BY",
      ],
    ],
  },

  // Orgs
  {
    name: "an erasure forgets a table",
    corner: "owners",
    about: "Something of a deleted org stays.",
    edits: [[erase, 'unordered("key_usage")],\n  ["schedules", table("job_schedules")],', 'unordered("key_usage")],']],
  },
  {
    name: "an erasure makes one pass",
    about: "What requests wrote that began before the deletion stays.",
    race: "create a key with an idempotency key, erase its org",
    edits: [
      [
        "domain/sweeps/Sweeps.ts",
        "!hasFound && DateTime.isGreaterThanOrEqualTo(now, DateTime.addDuration(deletedAt, settleTime))",
        "!hasFound || DateTime.isGreaterThanOrEqualTo(now, DateTime.addDuration(deletedAt, settleTime))",
      ],
    ],
  },
  {
    name: "a deleted org still sends",
    corner: "owners",
    about: "What was claimed before the deletion is sent after it, and the queue does not ask for the org.",
    edits: [
      [
        "infrastructure/webhooks/DeliveryWorker.ts",
        "if (deletedOrgs.has(delivery.orgId)) {",
        'if (delivery.orgId === "") {',
      ],
      [claim, "EXISTS (SELECT FROM orgs WHERE id = ${row}.org_id)`", "${row}.org_id > ''`"],
    ],
  },

  // Tenants
  {
    name: "jobs of other tenants are listed",
    about: "A list of jobs does not ask whose they are.",
    edits: [[retryJobs, "? sql`org_id = ${orgId}`", "? sql`org_id >= ''`"]],
  },
  {
    name: "endpoints of other tenants are listed",
    about: "A list of endpoints does not ask whose they are.",
    edits: [
      [
        endpoints,
        "WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}\n              AND",
        "WHERE ${orgId} <> '' AND ${afterCursor(sql, page)}\n              AND",
      ],
    ],
  },
  {
    name: "an event reaches the endpoints of all",
    corner: "endpoints",
    about: "The endpoints that want an event are searched in all orgs.",
    edits: [
      [
        insert,
        "WHERE org_id = k.org_id AND ${wantsTopics(sql, sql`k.topics`, sql`k.channels`)}",
        "WHERE ${wantsTopics(sql, sql`k.topics`, sql`k.channels`)}",
      ],
      [insert, "WHERE id = c.endpoint AND org_id = c.org_id FOR SHARE", "WHERE id = c.endpoint FOR SHARE"],
    ],
  },

  // Limits per second
  {
    name: "a limit per second is forgotten",
    corner: "rates",
    about: "A claim does not write when the endpoint may send again.",
    edits: [[claim, "SET next_at = throttles.next_at FROM throttles", "SET next_at = now() FROM throttles"]],
  },

  // Retention
  {
    name: "an org's retention forgets its jobs",
    corner: "retention",
    about: "The events of an org with a shorter retention are removed, and their jobs are not.",
    edits: [
      [
        "infrastructure/retention/retentionSql.ts",
        '"", events, rowsOf(tables.webhooks[3]!, "finished_jobs", events))',
        '"", events, sql`false`)',
      ],
      [
        "infrastructure/retention/retentionSql.ts",
        'AND NOT EXISTS (SELECT FROM events WHERE id = f.end_id) AS "isGone"',
        'AND f.end_id = f.id AS "isGone"',
      ],
    ],
  },

  // Many jobs at once
  {
    name: "a retry replaces a newer job of its key",
    corner: "bulk",
    about: "A failed job is queued again although another one has its unique key since.",
    edits: [
      [
        retryJobs,
        "WHERE EXISTS (SELECT FROM jobs WHERE jobs.id = k.job_id AND ${isOfOrg(sql, orgId)})`",
        "WHERE EXISTS (SELECT FROM jobs WHERE jobs.id = k.job_id AND ${isOfOrg(sql, orgId)} AND jobs.status = 'running')`",
      ],
    ],
  },
  {
    name: "a cancellation by a filter ends early",
    corner: "bulk",
    about: "It cancels the jobs that wait, and not those that workers have.",
    edits: [[retryJobs, '["queued", "running"]\n  const heads', '["queued"]\n  const heads']],
  },
  {
    name: "a debounced job keeps its input",
    corner: "bulk",
    about: "A later request of the same key delays the job, and does not replace its input.",
    edits: [[createJobs, "UPDATE jobs SET input = ${input}, steps", "UPDATE jobs SET steps"]],
  },
  {
    name: "a unique job is decided by what was seen",
    corner: "bulk",
    about: "The job of a key counts as ended, whatever has become of it.",
    edits: [
      [
        createJobs,
        "(status !== null && unique.states.includes(status)) ||",
        '(status !== null && status !== "running" && unique.states.includes(status)) ||',
      ],
    ],
  },
  {
    name: "an addition of credits sets them",
    corner: "limits",
    about: "Credits that are added replace what is left.",
    edits: [
      [
        "domain/keys/KeySettings.ts",
        "Math.max(0, (credits?.remaining ?? 0) + add))",
        "Math.max(0, add === 0 ? (credits?.remaining ?? 0) : add))",
      ],
    ],
  },
  {
    name: "a resend forgets what was skipped",
    corner: "endpoints",
    about: "A resend by a filter leaves out what came while the endpoint was inactive.",
    edits: [
      [
        "infrastructure/webhooks/deliveryLogSql.ts",
        "coalesce(w.active AND ${sql.and(wanted)}, false) AS wanted",
        "coalesce(w.active AND d.attempts > 0 AND ${sql.and(wanted)}, false) AS wanted",
      ],
    ],
  },

  // Channels, payloads and external ids of endpoints
  {
    name: "an event reaches all channels",
    corner: "endpoints",
    about: "An endpoint with channels gets what was published to others.",
    edits: [[insert, "(channels IS NULL OR channels && ${channels})", "(channels IS NULL OR ${channels} IS NOT NULL)"]],
  },
  {
    name: "data is sent in its envelope",
    corner: "endpoints",
    about: "The payload of an endpoint is forgotten by a claim.",
    edits: [[claim, 'sentBody(row.payload ?? "envelope",', 'sentBody(row.payload === null ? "data" : "envelope",']],
  },
  {
    name: "the names of headers are forgotten",
    corner: "endpoints",
    about: "An endpoint that wants the headers of Svix gets those of Standard Webhooks.",
    edits: [[claim, 'headerNames: row.header_style ?? "webhook"', 'headerNames: row.id === "" ? "svix" : "webhook"']],
  },
  {
    name: "an external id is looked up in all orgs",
    corner: "endpoints",
    about: "Two tenants have named their endpoints alike.",
    edits: [
      [
        endpoints,
        "sql`external_id = ${by.externalId}`} AND org_id = ${orgId}`",
        "sql`external_id = ${by.externalId}`} AND ${orgId} > ''`",
      ],
    ],
  },

  // Roles, imports and tokens
  {
    name: "a change of a role notifies nobody",
    corner: "keys",
    about: "Only the replica that changes a role forgets the keys that have it.",
    edits: [
      [
        "infrastructure/keys/rolesSql.ts",
        "          if (changed.length === 0) return yield* tooManyRoles()\n          yield* notify(orgId)\n",
        "          if (changed.length === 0) return yield* tooManyRoles()\n",
      ],
    ],
  },
  {
    name: "an import notifies nobody",
    corner: "keys",
    about: "A replica that remembers that no key was imported refuses those that are.",
    edits: [[apiKeys, "      yield* sql`SELECT pg_notify(${revocationChannel}, ${keysImported})`\n", ""]],
  },
  {
    name: "a replica signs with a key of its own",
    corner: "keys",
    about: "Of two replicas that make the first key of tokens, one keeps a key that is stored nowhere.",
    edits: [["domain/keys/KeyTokens.ts", "    return yield* reread\n", "    return [key]\n"]],
  },

  {
    name: "a replica remembers that no key signs",
    corner: "keys",
    about: "For a minute it shows no key, while another replica has made the first one and signs. It was so (seed 97).",
    edits: [["domain/keys/KeyTokens.ts", "known !== undefined && known.keys.length > 0 &&", "known !== undefined &&"]],
  },

  // Workflows
  {
    name: "what runs is not counted",
    corner: "workflows",
    about: "Each claim gets as many jobs as the workflow may run.",
    edits: [[limitedClaims, "w.concurrency - running.count", "w.concurrency"]],
  },
  {
    name: "what runs of a key is not counted",
    corner: "workflows",
    about: "Each claim gets as many jobs of a key as may run.",
    edits: [
      [limitedClaims, "AND lease_expires_at IS NOT NULL LIMIT r.per_key", "AND lease_expires_at IS NOT NULL LIMIT 0"],
    ],
  },
  {
    name: "a rate counts half of its window",
    corner: "workflows",
    about: "Claims start more jobs in the other half.",
    edits: [[limitedClaims, "secs => w.rate_window_seconds)", "secs => w.rate_window_seconds / 2)"]],
  },
  {
    name: "the first keys never have a turn",
    corner: "workflows",
    about: "After the last key the turn does not come back to those before it.",
    edits: [
      [
        limitedClaims,
        "concurrency_key > '' AND concurrency_key <= r.last_key AND NOT walk.is_second",
        "concurrency_key > '' AND concurrency_key < '' AND NOT walk.is_second",
      ],
    ],
  },
  {
    name: "a lost lease forgets the policy",
    corner: "workflows",
    about: "A job whose lease has ended is tried as often as it says itself.",
    edits: [
      [
        jobRepository,
        "SELECT attempts_before + (retry ->> 'attempts')::int FROM workflows w",
        "SELECT attempts_before + max_attempts FROM workflows w",
      ],
    ],
  },
  {
    name: "the expiry of a workflow is forgotten",
    corner: "workflows",
    about: "A new job expires only if it says so itself.",
    edits: [[createJobs, "SELECT w.expires_in_seconds FROM workflows w", "SELECT NULL::int FROM workflows w"]],
  },
  {
    name: "a sweep that was ended goes on",
    corner: "bulk",
    about: "A retry or a cancellation by a filter changes jobs after somebody has ended it.",
    edits: [
      [
        "infrastructure/filterSweeps.ts",
        "DELETE FROM sweeps WHERE id = ${entry.target}",
        "UPDATE sweeps SET total = total WHERE id = ${entry.target}",
      ],
    ],
  },

  // Locks
  {
    name: "the counter deleted by a waiting statement",
    about: "The counter is deleted by a statement that waits, and so does not see the key of a rotation.",
    race: "rotate a key with credits, delete it",
    edits: [
      [
        apiKeys,
        "AND ${hasOwner()} FOR UPDATE`\n          if (key === undefined) return yield* keyNotFound()",
        "AND ${hasOwner()}`\n          if (key === undefined) return yield* keyNotFound()",
      ],
      [
        apiKeys,
        "const [counter] = yield* lockCounters(sql, [{ orgId, id: counterId }])\n          yield* audited(",
        "yield* sql`DELETE FROM key_counters WHERE id = ${counterId} AND org_id = ${orgId}\n        AND NOT EXISTS (SELECT FROM api_keys WHERE ${isOfOrg(sql, orgId)} AND counter_id = ${counterId})`\n    const counter = key.counterId === '' ? key : undefined\n          yield* audited(",
      ],
    ],
  },
  {
    name: "two deletions leave a counter",
    about: "Each of two deletions of the last keys sees the key of the other one.",
    race: "delete a key, delete the last other one of its counter",
    edits: [
      [
        apiKeys,
        "const [counter] = yield* lockCounters(sql, [{ orgId, id: counterId }])\n          yield* audited(",
        "const counter = key\n          yield* audited(",
      ],
    ],
  },
  {
    name: "a report does not look at what it changes",
    about: "A report that was read before a lease ended and another worker claimed does not compare what is there.",
    race: "complete a job with the fence, claim it again",
    edits: [
      [
        reportJobs,
        "AND jobs.status = asked.was_status AND jobs.attempt = asked.was_attempt",
        "AND asked.was_status IS NOT NULL AND asked.was_attempt IS NOT NULL",
      ],
      [reportJobs, "AND date_trunc('milliseconds', jobs.lease_expires_at) IS NOT DISTINCT FROM asked.was_lease", ""],
    ],
  },

  // By somebody who had not seen the simulation
  {
    name: "a lost connection keeps the memory",
    about: "When a silent connection is found to be lost, memory is not cleared, and counts as current.",
    corner: "keys",
    edits: [
      [
        "infrastructure/keys/KeyCache.ts",
        "    memory.clear()\n    // An empty memory holds no key that was revoked.\n",
        "    if (connected) memory.clear()\n    // An empty memory holds no key that was revoked.\n",
      ],
    ],
  },
  {
    name: "the return of a quota is tried again",
    about: "A return of unused units whose answer was lost is repeated, and the units are put back twice.",
    corner: "limits",
    edits: [
      [
        "domain/keys/LeasedQuotas.ts",
        "      return Effect.ignore(lease(held, { need: 0, waiting: 0, want: 0, unused }))",
        "      return Effect.ignore(Effect.retry(lease(held, { need: 0, waiting: 0, want: 0, unused }), { times: 2 }))",
      ],
    ],
  },
  {
    name: "a record is read before the lock",
    about: "A request reads the record of its key, then takes the lock just after another one has committed.",
    race: "create a key with an idempotency key, create it again",
    edits: [
      [
        "infrastructure/idempotency/idempotencySql.ts",
        "          const [lock] = yield* sql<{ free: boolean }>`",
        "          const [found] = yield* sql<{ record: string }>`\n            SELECT record FROM idempotency_keys\n            WHERE org_id = ${orgId} AND caller = ${caller} AND operation = ${name} AND key = ${key} AND expires_at > ${date(now)}`\n          if (found !== undefined) return KeyedOutcome.Found({ record: found.record })\n          const [lock] = yield* sql<{ free: boolean }>`",
      ],
      [
        "infrastructure/idempotency/idempotencySql.ts",
        "          // A separate statement after the lock, so that it sees what the previous holder of the lock has committed.\n          const [found] = yield* sql<{ record: string }>`\n            SELECT record FROM idempotency_keys\n            WHERE org_id = ${orgId} AND caller = ${caller} AND operation = ${name} AND key = ${key} AND expires_at > ${date(now)}`\n          if (found !== undefined) return KeyedOutcome.Found({ record: found.record })\n          const { response, record }",
        "          const { response, record }",
      ],
    ],
  },
  {
    name: "a throttle is not locked",
    about: "Two claims at the same time read the same time of the next attempt.",
    race: "with a limit per second: claim deliveries, claim others",
    edits: [
      [
        "infrastructure/webhooks/claimDeliveries.ts",
        "AND endpoint_id = w.id FOR UPDATE SKIP LOCKED",
        "AND endpoint_id = w.id",
      ],
    ],
  },
  {
    name: "a released delivery loses its place",
    about: "What an ordered endpoint's worker gives back comes after what was queued later.",
    corner: "ordered",
    edits: [
      [
        "infrastructure/webhooks/deliveryQueueSql.ts",
        "        due_at = CASE WHEN p.backlogged THEN p.due_at ELSE ${date(now)} END, backlogged = true",
        "        due_at = ${date(now)}, backlogged = true",
      ],
    ],
  },
  {
    name: "a signer in memory is never renewed",
    about:
      "Changed headers, a rotated public key and the end of the old secret have no effect at a replica that has sent before.",
    corner: "endpoints",
    edits: [
      [
        "domain/webhooks/Dispatcher.ts",
        "areSame(known.secrets, secretsOf(delivery)) ? known.sign",
        "areSame(known.secrets.slice(0, delivery.secrets.length), delivery.secrets) ? known.sign",
      ],
    ],
  },
  {
    name: "a report ignores a longer lease",
    about: "A heartbeat that was answered between the read and the write of an expiry does not save the job.",
    corner: "jobs",
    edits: [
      [
        "infrastructure/jobs/reportJobs.ts",
        "      AND jobs.status = asked.was_status AND jobs.attempt = asked.was_attempt\n      AND date_trunc('milliseconds', jobs.lease_expires_at) IS NOT DISTINCT FROM asked.was_lease",
        "      AND jobs.status = asked.was_status AND jobs.attempt = asked.was_attempt",
      ],
    ],
  },
  {
    name: "a change of a schedule restores its time",
    about: "A change reads the next time without a lock, waits for a run, and writes the old time back.",
    race: "run a due schedule, change its priority",
    edits: [
      [
        "infrastructure/jobs/jobSchedulesSql.ts",
        "next_at FROM job_schedules WHERE ${is} FOR UPDATE`",
        "next_at FROM job_schedules WHERE ${is}`",
      ],
    ],
  },
  {
    name: "a filter lets everything through",
    corner: "endpoints",
    about: "The statement that makes deliveries forgets the filter of an endpoint.",
    edits: [[insert, " OR coalesce(jsonb_path_match(${json}, ${path}, '{}', true), true))", " OR true)"]],
  },
  {
    name: "a batch is as large as what waits",
    corner: "endpoints",
    about: "The deliveries of a lane go out in one request, whatever its endpoint takes.",
    edits: [
      [
        "infrastructure/webhooks/DeliveryWorker.ts",
        "last !== undefined && last.length < delivery.batchMax! &&",
        "last &&",
      ],
    ],
  },
  {
    name: "retention takes no lock of the org",
    about: "What is resent between the look and the removal of an org's old events loses its event.",
    race: "remove old events of an org, resend those of its endpoint",
    edits: [["infrastructure/retention/retentionSql.ts", '          yield* lockResends(sql, orgId, "alone")\n', ""]],
  },
  {
    name: "an erasure settles early",
    about: "An erasure ends five seconds after the deletion, before the last transaction of a paused replica.",
    race: "create a key with an idempotency key, erase its org",
    edits: [
      ["domain/sweeps/Sweeps.ts", "const settleTime = Duration.minutes(1)", "const settleTime = Duration.seconds(5)"],
    ],
  },
  {
    name: "a changed catalogue is not checked again",
    corner: "orgs",
    about: "An event is checked with what the replica has read, and stored whatever is current then.",
    edits: [["infrastructure/webhooks/eventsSql.ts", " AND strict_events IS NOT DISTINCT FROM a.checked)", ")"]],
  },
  {
    name: "an alert has no claim",
    corner: "orgs",
    about: "Each replica looks at all alerts whenever it looks, so two tell the same.",
    edits: [
      [
        "infrastructure/alerts/alertsSql.ts",
        "FROM alerts WHERE active AND due_at <= now() AND ${exists}",
        "FROM alerts WHERE active AND ${exists}",
      ],
      [
        "infrastructure/alerts/alertsSql.ts",
        "id = ANY(ARRAY(SELECT id FROM chosen)) AND active AND due_at <= now()",
        "id = ANY(ARRAY(SELECT id FROM chosen)) AND active",
      ],
    ],
  },
  {
    name: "a resend sends what was delivered",
    corner: "endpoints",
    about: "What was delivered is sent again with what failed.",
    edits: [
      [
        "infrastructure/webhooks/deliveryLogSql.ts",
        "(VALUES ('failed'), ('canceled'), ('skipped')) AS s (state)",
        "(VALUES ('failed'), ('canceled'), ('skipped'), ('delivered')) AS s (state)",
      ],
    ],
  },
  {
    name: "a claim forgets who is urgent",
    corner: "bulk",
    about: "Jobs are claimed in the order of their creation alone.",
    edits: [
      [
        "infrastructure/jobs/claimJobs.ts",
        "ORDER BY priority DESC, id LIMIT ${limit} FOR UPDATE SKIP LOCKED",
        "ORDER BY id LIMIT ${limit} FOR UPDATE SKIP LOCKED",
      ],
    ],
  },
  {
    name: "a key lets others in as soon as its job has ended",
    corner: "bulk",
    about: "The time after the creation of the newest job is forgotten.",
    edits: [
      [
        "domain/jobs/Jobs.ts",
        "const since = within === undefined ? null : DateTime.subtract(now, { seconds: within })",
        "const since = null",
      ],
    ],
  },
  // By somebody else who had not seen it, on 29 November
  {
    name: "a resend forgets what is about to be canceled",
    corner: "endpoints",
    about: "What was in flight when its endpoint was deactivated is not sent again by a resend without a state.",
    edits: [
      [
        "infrastructure/webhooks/deliveryLogSql.ts",
        '${state === undefined || state === "canceled" ? sql`UNION ALL',
        '${state === "canceled" ? sql`UNION ALL',
      ],
    ],
  },
  {
    name: "a run without a job forgets the last one",
    corner: "schedules",
    about: "A schedule that skips creates a job at the next time but one, although its last job is open.",
    edits: [
      [
        "infrastructure/jobs/jobSchedulesSql.ts",
        "last_job_id = coalesce(ran.job_id, last_job_id) FROM",
        "last_job_id = ran.job_id FROM",
      ],
    ],
  },
  {
    name: "a count that was not written is trusted",
    corner: "orgs",
    about: "What a killed replica had created and not counted leaves room for retries by a filter.",
    edits: [
      [
        "infrastructure/orgs/enforceLimits.ts",
        "const isCounted = usage.countedOrg(column, orgId) !== undefined && written !== null",
        "const isCounted = written !== null",
      ],
    ],
  },
  {
    name: "a claim leaves the settings as they were",
    race: "with a concurrency: claim a job, create a more urgent one, claim that",
    about: "Another claim that waited for it counts what ran before it.",
    edits: [
      [limitedClaims, "UPDATE workflows w SET version = version + 1, last_key", "UPDATE workflows w SET last_key"],
    ],
  },
  {
    name: "a look at an alert writes back what it read",
    corner: "orgs",
    about: "A change of an alert that comes while it is told is undone.",
    edits: [["infrastructure/alerts/alertsSql.ts", " AND due_at = ${date(alert.leaseUntil)} RETURNING", " RETURNING"]],
  },
  {
    name: "the end of a role notifies nobody",
    corner: "keys",
    about: "What a deleted role granted stays in the memory of other replicas.",
    edits: [
      [
        "infrastructure/keys/rolesSql.ts",
        "          if (removed.length === 0) return yield* roleNotFound()\n          yield* notify(orgId)\n",
        "          if (removed.length === 0) return yield* roleNotFound()\n",
      ],
    ],
  },
  {
    name: "a type leaves the catalogue as it was",
    corner: "orgs",
    about: "An event of a type that was deleted is checked with what a replica has read before.",
    edits: [
      [
        "infrastructure/webhooks/eventTypesSql.ts",
        "        yield* sql`UPDATE orgs SET strict_events = ${entry.id} WHERE id = ${orgId} AND strict_events IS NOT NULL`\n",
        '        if (entry.action !== "event_type.delete")\n          yield* sql`UPDATE orgs SET strict_events = ${entry.id} WHERE id = ${orgId} AND strict_events IS NOT NULL`\n',
      ],
    ],
  },
  {
    name: "a claim takes what has expired",
    corner: "workflows",
    about: "A job that has expired is claimed, if no sweep has found it yet.",
    edits: [
      [
        "infrastructure/jobs/queuedJobs.ts",
        "sql`(attempt > 0 OR expires_at IS NULL OR expires_at > ${date(now)})`",
        "sql`(attempt >= 0 OR expires_at > ${date(now)})`",
      ],
    ],
  },
  // People
  {
    name: "a logout token of a session ends all",
    corner: "deployments",
    about: "The provider signs out one session of a person, and everybody is signed out.",
    edits: [
      ["infrastructure/sessions/sessionsSql.ts", '${sid === undefined ? sql.literal("") : sql`AND sid = ${sid}`}', ""],
    ],
  },
  {
    name: "a lost role keeps its sessions",
    corner: "deployments",
    about: "A person who comes back with another role keeps the sessions of the one that they had.",
    edits: [
      [
        "infrastructure/sessions/sessionsSql.ts",
        "<> ALL(${texts(except)})",
        "<> ALL(${texts(except)}) AND ${except.length === 0}::boolean",
      ],
    ],
  },
  {
    name: "a session outlives its id token",
    corner: "deployments",
    about: "All sessions last as long as those of keys.",
    edits: [
      ["domain/sessions/Sessions.ts", "expiresAt: end ? DateTime.min(expiresAt, end) : expiresAt }", "expiresAt }"],
    ],
  },
  {
    name: "a role of an org counts for all",
    corner: "deployments",
    about: "The session of a person forgets the org of their role.",
    edits: [
      [
        "domain/sessions/People.ts",
        "sessions.signInPerson({ orgId, person",
        'sessions.signInPerson({ orgId: "", person',
      ],
    ],
  },
  // Documentation
  {
    name: "a list has the pages of all editions",
    corner: "deployments",
    about: "The pages that a new version has replaced stay for a minute, and are listed.",
    edits: [
      [
        "infrastructure/docs/projectDocsSql.ts",
        "SELECT slug, title, description FROM docs_pages WHERE ${isIn(docs, edition)} ORDER BY slug",
        "SELECT slug, title, description FROM docs_pages WHERE ${isOf(sql, docs)} ORDER BY slug",
      ],
    ],
  },
  {
    name: "an old fetch stores its pages",
    corner: "deployments",
    about: "A worker stores what it has fetched, although the owner has set another version meanwhile.",
    edits: [
      ["infrastructure/docs/projectDocsSql.ts", "sql`${isOf(sql, docs)} AND lease = ${docs.lease}`", "isOf(sql, docs)"],
    ],
  },
  // By somebody who had not seen the simulation
  {
    name: "a rotation makes a key live longer",
    corner: "keys",
    about: "A key that ends before its grace period ends with it.",
    edits: [
      [
        apiKeys,
        "expires_at = least(expires_at, ${date(oldKeyUntil)}::timestamptz)",
        "expires_at = ${date(oldKeyUntil)}::timestamptz",
      ],
    ],
  },
  {
    name: "a role counts in all orgs",
    corner: "keys",
    about: "A key has the permissions of another org's role of the same name.",
    edits: [[apiKeys, "WHERE role.org_id = api_keys.org_id AND role.name IN", "WHERE role.name IN"]],
  },
  {
    name: "the policy forgets that a job was retried",
    corner: "workflows",
    about: "A lease of a retried job ends, and neither the expiry nor the report takes the job for its own.",
    edits: [
      [
        jobRepository,
        "SELECT attempts_before + (retry ->> 'attempts')::int FROM workflows w",
        "SELECT (retry ->> 'attempts')::int FROM workflows w",
      ],
    ],
  },
  {
    name: "slots that are left go to one key",
    corner: "workflows",
    about: "A claim of more jobs than there are keys takes more of a key than may run.",
    edits: [[limitedClaims, "LIMIT least(r.free, r.room)", "LIMIT r.room"]],
  },
  {
    name: "an attempt is recorded where it began",
    corner: "endpoints",
    about: "A delivery that a resend has moved meanwhile is sent again after its lease.",
    edits: [
      [
        record,
        "sql`ANY(ARRAY[made.lane, (SELECT w.lane FROM webhook_endpoints w WHERE w.id = made.endpoint_id)])`",
        'sql.literal("made.lane")',
      ],
    ],
  },
  {
    name: "a portal outlives the session of its maker",
    corner: "deployments",
    about: "The session in which a link was made counts until its row is removed.",
    edits: [
      [
        "infrastructure/sessions/sessionsSql.ts",
        "maker.hash = sessions.made_in AND maker.expires_at > ${date(now)}))",
        "maker.hash = sessions.made_in))",
      ],
    ],
  },
  {
    name: "the log until a time looks at ids",
    corner: "orgs",
    about: "After a clock has stepped back, entries have ids of a later time.",
    edits: [
      [
        "infrastructure/audit/auditLogSql.ts",
        "id < ${idAt(DateTime.toEpochMillis(until) + maxStepMillis)}",
        "id < ${idAt(DateTime.toEpochMillis(until))}",
      ],
    ],
  },
  {
    name: "a promotion forgets the newest run",
    corner: "deployments",
    about: "After a roll back, a late run that is older than the newest becomes current.",
    edits: [
      [
        "infrastructure/deployments/deploymentsSql.ts",
        "const newest = newestOf([project.newest, promoted])",
        "const newest = promoted ?? project.newest",
      ],
    ],
  },
  {
    name: "removed documentation keeps its pages",
    corner: "deployments",
    about: "The worker takes them for those of the current edition.",
    edits: [
      [
        "infrastructure/docs/projectDocsSql.ts",
        "lease = NULL, leased_until = NULL, edition = NULL,\n              bytes = NULL",
        "lease = NULL, leased_until = NULL,\n              bytes = NULL",
      ],
    ],
  },
]
