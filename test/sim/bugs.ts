/** A fault that is planted in a copy of the source, to see whether the simulation finds it. */
export interface Bug {
  readonly name: string
  /** What someone could have thought, or forgotten. */
  readonly about: string
  /** Replacements of a text that stands once in a file of `src`. */
  readonly edits: ReadonlyArray<readonly [file: string, from: string, to: string]>
  /** The pair of writes that shows it on real locks, of `test/contract/races.ts`; else it shows in simulation. */
  readonly race?: string
}

const keyCache = "infrastructure/keys/KeyCache.ts"
const apiKeys = "infrastructure/keys/ApiKeyRepository.ts"
const keyCounters = "infrastructure/keys/KeyCounterRepository.ts"
const keyCounter = "domain/keys/KeyCounter.ts"
const leasedQuotas = "domain/keys/LeasedQuotas.ts"
const finishJobs = "infrastructure/jobs/finishJobs.ts"
const jobRepository = "infrastructure/jobs/JobRepository.ts"
const sweepJobs = "infrastructure/jobs/sweepJobs.ts"
const jobEnd = "domain/jobs/JobEnd.ts"
const schedules = "infrastructure/jobs/runSchedules.ts"
const record = "infrastructure/webhooks/recordAttempts.ts"
const claim = "infrastructure/webhooks/claimDeliveries.ts"
const insert = "infrastructure/webhooks/insertEvents.ts"
const endpoints = "infrastructure/webhooks/WebhookEndpointRepository.ts"
const slots = "domain/webhooks/Slots.ts"
const retryDecision = "domain/webhooks/RetryDecision.ts"
const idempotency = "infrastructure/idempotency/IdempotencyRepository.ts"
const eraseOrg = "infrastructure/orgs/eraseOrg.ts"

export const bugs: ReadonlyArray<Bug> = [
  // Keys
  {
    name: "memory answers after a pause",
    about: "The age of the last proof does not count, so a replica that stood still answers from memory.",
    edits: [
      [
        keyCache,
        "return grant !== undefined && nowMillis() - provenAt < maxProofAgeMillis ? grant : undefined",
        "return grant",
      ],
    ],
  },
  {
    name: "a slow look-up survives a revocation",
    about: "A key that was read before its deletion is put into memory after it.",
    edits: [[keyCache, "if (isConnected && epoch === startEpoch)", "if (isConnected)"]],
  },
  {
    name: "memory survives a lost connection",
    about: "What was revoked while nothing was heard stays in memory.",
    edits: [[keyCache, "    memory.clear()\n    // What is empty is current.\n", ""]],
  },
  {
    name: "a deletion notifies nobody",
    about: "Only the replica that deletes a key forgets it.",
    edits: [
      [
        apiKeys,
        'DELETE FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}\n        RETURNING org_id AS "orgId", pg_notify(${revocationChannel}, id)',
        'DELETE FROM api_keys WHERE id = ${keyId} AND org_id = ${orgId}\n        RETURNING org_id AS "orgId"',
      ],
    ],
  },
  {
    name: "a change notifies nobody",
    about: "Only the replica that disables a key knows of it.",
    edits: [
      [
        apiKeys,
        "const changed = yield* notify(sql, orgId, keyId, isLimitChange ? counterId : undefined)",
        "const changed = [keyId]",
      ],
    ],
  },
  {
    name: "the keys of a deleted org stay in memory",
    about: "The news of a deleted org is not passed on to the memory of keys.",
    edits: [[keyCache, "    memory.removeOwner(orgId, projectId)\n", ""]],
  },
  {
    name: "the keys of a deleted project stay valid",
    about: "A look-up does not ask whether the project of a key exists.",
    edits: [
      [apiKeys, "AND (${keys}.project_id IS NULL OR EXISTS (SELECT FROM projects WHERE id = ${keys}.project_id))", ""],
      [keyCache, "    memory.removeOwner(orgId, projectId)\n", ""],
    ],
  },
  {
    name: "a rotation forgets the end of the old key",
    about: "The old key stays valid after its grace period.",
    edits: [[apiKeys, "expires_at = least(expires_at, ${date(oldKeyUntil)}::timestamptz)", "expires_at = expires_at"]],
  },
  {
    name: "a counter goes with its first key",
    about: "The deletion of a rotated key deletes the counter that its replacement needs.",
    edits: [
      [
        apiKeys,
        "        AND NOT EXISTS (SELECT FROM api_keys WHERE org_id = ${orgId} AND counter_id = ${counterId})\n",
        "",
      ],
    ],
  },
  {
    name: "leased units are not written",
    about: "A lease is given out, and the counter keeps its units.",
    edits: [[keyCounters, "if (answers.size > 0) yield*", "if (answers.size > 1_000) yield*"]],
  },
  {
    name: "an idle quota is returned and kept",
    about: "Units that go back to the database are used here, too.",
    edits: [[leasedQuotas, "  held.quota = null\n  held.units = 0\n  return unused", "  return unused"]],
  },
  {
    name: "unused units are put back at any time",
    about: "Units of a quota from before a change of the limits count for the new ones.",
    edits: [
      [
        keyCounter,
        "if (quota.version !== counter.version || quota.units === 0) return counter",
        "if (quota.units === 0) return counter",
      ],
    ],
  },
  {
    name: "credits are never taken",
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
    about: "The record of an idempotency key is not read.",
    edits: [
      [idempotency, "if (found !== undefined) return", "if (found !== undefined && found.record === key) return"],
    ],
  },
  {
    name: "a record without its operation",
    about: "The operation and its record are two transactions.",
    edits: [[idempotency, "        }).pipe(sql.withTransaction, orUnavailable),", "        }).pipe(orUnavailable),"]],
  },

  // Jobs
  {
    name: "a late worker completes a job",
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
    about: "What was read before a report is not compared with what is there.",
    edits: [
      [
        finishJobs,
        "AND jobs.status = asked.was_status AND jobs.attempt = asked.was_attempt",
        "AND asked.was_status IS NOT NULL AND asked.was_attempt IS NOT NULL",
      ],
      [finishJobs, "AND date_trunc('milliseconds', jobs.lease_expires_at) IS NOT DISTINCT FROM asked.was_lease", ""],
    ],
  },
  {
    name: "the first receiver gets nothing",
    about: "The deliveries of a finished job begin with the second endpoint.",
    edits: [[finishJobs, "to.slice(0, inlineReceivers)", "to.slice(1, inlineReceivers)"]],
  },
  {
    name: "an expired lease is forgotten",
    about: "A job with one attempt left is neither queued nor failed.",
    edits: [
      [jobRepository, "FROM picked WHERE attempt < max_attempts))", "FROM picked WHERE attempt < max_attempts - 1))"],
    ],
  },
  {
    name: "a completion again makes another event",
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
    about: "A job that ends stays in the queue.",
    edits: [
      [
        finishJobs,
        "DELETE FROM jobs USING asked WHERE",
        "UPDATE jobs SET status = 'queued', lease_expires_at = NULL FROM asked WHERE",
      ],
    ],
  },

  // Schedules
  {
    name: "a schedule does not move on",
    about: "A run leaves the schedule due.",
    edits: [[schedules, "SET next_at = ran.next_at,", "SET next_at = job_schedules.next_at,"]],
  },
  {
    name: "a run is forgotten",
    about: "The next run is searched from a minute later.",
    edits: [
      [schedules, "nextRun(cron, timezone, now)", "nextRun(cron, timezone, DateTime.add(now, { minutes: 1 }))"],
      [schedules, 'import { Effect, Result } from "effect"', 'import { DateTime, Effect, Result } from "effect"'],
    ],
  },
  {
    name: "skip does not skip",
    about: "A schedule creates a job while its last one is open.",
    edits: [[schedules, "blocked.has(id)\n", 'blocked.has(id) && id === ""\n']],
  },

  // Deliveries
  {
    name: "a retry loses its place",
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
    about: "The cap of an ordered lane is that of the others.",
    edits: [[slots, "(lane.ordered ? 1 : laneCap)", "laneCap"]],
  },
  {
    name: "an ordered lane has gaps",
    about: "A claim takes the free deliveries behind one that another replica has.",
    edits: [[claim, ") AS head WHERE has_no_gap`", ") AS head WHERE has_no_gap IS NOT NULL`"]],
  },
  {
    name: "a failed delivery is given up",
    about: "A failed attempt counts as the last one.",
    edits: [[retryDecision, "  if (wait === undefined) return", "  if (wait === undefined || status === 503) return"]],
  },
  {
    name: "an error counts as delivered",
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
    about: "A 410 deactivates the endpoint, and its other deliveries stay pending.",
    edits: [[record, "    yield* cancelLanes(sql, random, ended, now)\n", "    void ended\n"]],
  },
  {
    name: "a deleted endpoint keeps its queue",
    about: "The deletion of an endpoint ends none of its deliveries.",
    edits: [[endpoints, "  yield* cancelLanes(sql, random, removed, now)\n", ""]],
  },
  {
    name: "a full lane loses a delivery",
    about: "A delivery behind a backlog is not queued.",
    edits: [
      [
        insert,
        "org_id, bytes FROM places ORDER BY n",
        "org_id, bytes FROM places WHERE NOT backlogged OR bytes % 7 > 0 ORDER BY n",
      ],
    ],
  },
  {
    name: "a record is not fenced",
    about: "A worker whose lease ran out records over the one that has the delivery now.",
    edits: [[record, " AND p.claim_id = made.claim_id LIMIT 1", " LIMIT 1"]],
  },
  {
    name: "an event with the same key again",
    about: "A publish with a known idempotency key makes another event.",
    edits: [
      [
        "infrastructure/webhooks/EventRepository.ts",
        "SELECT org_id, key, id FROM asked WHERE key IS NOT NULL ORDER BY",
        "SELECT org_id, id, id FROM asked WHERE key IS NOT NULL ORDER BY",
      ],
    ],
  },

  // Orgs
  {
    name: "an erasure forgets a table",
    about: "Something of a deleted org stays.",
    edits: [[eraseOrg, '  ["schedules", table("job_schedules")],\n', ""]],
  },
  {
    name: "an erasure makes one pass",
    about: "What requests wrote that began before the deletion stays.",
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
    edits: [[sweepJobs, "? sql`org_id = ${orgId}`", "? sql`org_id >= ''`"]],
  },
  {
    name: "endpoints of other tenants are listed",
    about: "A list of endpoints does not ask whose they are.",
    edits: [
      [
        endpoints,
        "FROM webhook_endpoints WHERE org_id = ${orgId} AND ${afterCursor(sql, page)}`",
        "FROM webhook_endpoints WHERE ${orgId} <> '' AND ${afterCursor(sql, page)}`",
      ],
    ],
  },
  {
    name: "an event reaches the endpoints of all",
    about: "The endpoints that want an event are searched in all orgs.",
    edits: [
      [
        insert,
        "WHERE org_id = k.org_id AND ${wantsTopics(sql, sql`k.topics`)}",
        "WHERE ${wantsTopics(sql, sql`k.topics`)}",
      ],
      [insert, "WHERE id = c.endpoint AND org_id = c.org_id FOR SHARE", "WHERE id = c.endpoint FOR SHARE"],
    ],
  },

  // Limits per second
  {
    name: "a limit per second is forgotten",
    about: "A claim does not write when the endpoint may send again.",
    edits: [[claim, "SET next_at = throttles.next_at FROM throttles", "SET next_at = now() FROM throttles"]],
  },

  // Locks
  {
    name: "the counter deleted by a waiting statement",
    about: "The counter is deleted by a statement that waits, and so does not see the key of a rotation.",
    race: "rotate a key with credits, delete it",
    edits: [
      [
        apiKeys,
        "AND ${hasOwner(sql)} FOR UPDATE`\n    if (key === undefined) return yield* keyNotFound()",
        "AND ${hasOwner(sql)}`\n    if (key === undefined) return yield* keyNotFound()",
      ],
      [
        apiKeys,
        "    const [counter] = yield* lockCounters(sql, [{ orgId, id: counterId }])\n    yield* audited(",
        "    yield* sql`DELETE FROM key_counters WHERE id = ${counterId} AND org_id = ${orgId}\n        AND NOT EXISTS (SELECT FROM api_keys WHERE org_id = ${orgId} AND counter_id = ${counterId})`\n    const counter = key.counterId === '' ? key : undefined\n    yield* audited(",
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
        "    const [counter] = yield* lockCounters(sql, [{ orgId, id: counterId }])\n    yield* audited(",
        "    const counter = key\n    yield* audited(",
      ],
    ],
  },
  {
    name: "a report does not look at what it changes",
    about: "The update of a job that waited for another report does not compare what was read before.",
    race: "complete a job, fail it",
    edits: [
      [
        finishJobs,
        "AND jobs.status = asked.was_status AND jobs.attempt = asked.was_attempt",
        "AND asked.was_status IS NOT NULL AND asked.was_attempt IS NOT NULL",
      ],
      [finishJobs, "AND date_trunc('milliseconds', jobs.lease_expires_at) IS NOT DISTINCT FROM asked.was_lease", ""],
    ],
  },
]
