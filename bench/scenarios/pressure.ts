import { setTimeout as sleep } from "node:timers/promises"
import { startArrivals } from "../support/arrivals.ts"
import { cpuOf } from "../support/cpu.ts"
import { folder, type Postgres, type Query, startPostgres } from "../support/postgres.ts"
import { amount, atLeast, atMost, figure, type Scenario } from "../support/result.ts"
import type { Scope } from "../support/scope.ts"
import { makeTenant, type Service, startService } from "../support/service.ts"
import { percentile } from "../support/stats.ts"

/** Events a second, and jobs a second. */
const eventRate = 200
const jobRate = 50

type Tenant = Awaited<ReturnType<typeof makeTenant>>

/** Calls `send` at a fixed rate, whether or not the calls before have ended; returns the milliseconds of each. */
const openLoop = async (perSecond: number, seconds: number, send: () => Promise<number>) => {
  const sending: Array<Promise<number>> = []
  const since = performance.now()
  for (let n = 0; n < perSecond * seconds; n++) {
    const wait = since + (n * 1000) / perSecond - performance.now()
    if (wait > 1) await sleep(wait)
    sending.push(send())
  }
  return Promise.all(sending)
}

interface Subject {
  readonly service: Service
  readonly tenant: Tenant
  readonly arrivals: Awaited<ReturnType<typeof startArrivals>>["arrivals"]
  readonly postgres: Postgres
  readonly query: Query
}

let ids = 0
let batchesLeft = 0

/** The milliseconds from a publish to the arrival of the event. */
const publishOne = async ({ arrivals, service, tenant }: Subject) => {
  const id = `pressure-${ids++}`
  const since = performance.now()
  await service.call(tenant.key, "/v1/events/publish", { type: "invoice.paid", data: { id, text: "x".repeat(400) } })
  for (let n = 0; n < 1_000; n++) {
    const at = arrivals.get(id)
    if (at !== undefined) return at - since
    await sleep(n < 100 ? 2 : 20)
  }
  throw new Error(`${id} did not arrive`)
}

/** The milliseconds of a job: created, claimed and completed. */
const workOne = async ({ service, tenant: { key } }: Subject) => {
  const since = performance.now()
  await service.call(key, "/v1/jobs/create", { workflow: "pressure", skip_callbacks: true })
  const { jobs } = await service.call(key, "/v1/jobs/claim", { workflow: "pressure" })
  // Another cycle may have claimed this one's job: it completes what it claimed.
  for (const { attempt, job_id } of jobs as ReadonlyArray<{ readonly job_id: string; readonly attempt: number }>) {
    await service.call(key, "/v1/jobs/complete", { job_id, attempt, result: "x".repeat(100) })
  }
  return performance.now() - since
}

const measure = async (subject: Subject, seconds: number) => {
  const { postgres, query, service } = subject
  const cpu = [postgres.cpu(), cpuOf(service.pid)] as const
  const since = performance.now()
  const [events, jobs] = await Promise.all([
    openLoop(eventRate, seconds, () => publishOne(subject)),
    openLoop(jobRate, seconds, () => workOne(subject)),
  ])
  const took = (performance.now() - since) / 1000
  const [dead] = await query(
    "SELECT coalesce(sum(n_dead_tup), 0)::float8 AS n FROM pg_stat_user_tables WHERE relname IN ('jobs', 'pending_deliveries')",
  )
  return {
    dead: dead!["n"] as number,
    rate: events.length / took,
    event50: percentile(events, 0.5),
    event99: percentile(events, 0.99),
    job50: percentile(jobs, 0.5),
    job99: percentile(jobs, 0.99),
    databaseCpu: (postgres.cpu() - cpu[0]) / took,
    cpu: (cpuOf(service.pid) - cpu[1]) / took,
  }
}

/**
 * Leaves as many dead rows as hours of work would: deliveries that were queued, claimed and delivered, half of them
 * from a backlog, and jobs that were queued, claimed and completed. The statements change rows as those of the service
 * do.
 */
const leaveDeadRows = async ({ query, tenant }: Subject, lane: string, batches: number) => {
  for (let batch = 0; batch < batches; batch++) {
    await sleep(500)
    const of = [`${batchesLeft++}`.padStart(6, "0"), lane, tenant.orgId]
    for (const backlogged of [false, true]) {
      await query(
        `INSERT INTO pending_deliveries (lane, delivery_id, event_id, attempts, tries, due_at, backlogged, org_id,
          bytes, created_at, updated_at)
         SELECT $2, '00' || $1 || '${backlogged ? "P" : "H"}' || n, 'none', 0, 0, now() - interval '1 hour' + n * interval '1 ms',
           ${backlogged}, $3, 400, now(), now() FROM generate_series(1, 10000) AS n`,
        of,
      )
      await query("UPDATE pending_deliveries SET claim_id = 'none', lease_until = now() WHERE event_id = 'none'")
      await query("DELETE FROM pending_deliveries WHERE event_id = 'none'")
    }
    await query(
      `INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
       SELECT '00' || $1 || n, $2, 'pressure', true, 'queued', now(), now() FROM generate_series(1, 10000) AS n`,
      [of[0], tenant.orgId],
    )
    await query(
      `UPDATE jobs SET status = 'running', attempt = 1, lease_expires_at = now() - interval '1 hour'
       WHERE id LIKE '00' || $1 || '%' AND status = 'queued'`,
      [of[0]],
    )
    await query("DELETE FROM jobs WHERE id LIKE '00' || $1 || '%' AND status = 'running'", [of[0]])
  }
}

const start = async (
  scope: Scope,
): Promise<Subject & { readonly lane: string; readonly hold: () => Promise<Query> }> => {
  const home = folder(scope)
  const postgres = await startPostgres(scope)
  const databaseUrl = await postgres.database("pressure")
  const to = await startArrivals(scope)
  const service = await startService(scope, home, { DATABASE_URL: databaseUrl, ADMIN_TOKEN: "" })
  const tenant = await makeTenant(service)
  const endpoint = await service.call(tenant.key, "/v1/webhooks/create", { url: to.url, signing_secret: "s" })
  // What the measurement itself writes is not what is measured.
  const query = await postgres.connect(databaseUrl)
  await query("SET synchronous_commit = off")
  const hold = async () => {
    const forgotten = await postgres.connect(databaseUrl)
    await forgotten("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await forgotten("SELECT 1")
    return forgotten
  }
  return {
    service,
    tenant,
    arrivals: to.arrivals,
    postgres,
    query,
    lane: endpoint["webhook_endpoint_id"] as string,
    hold,
  }
}

/** Publish → deliver and create → claim → complete, while a forgotten transaction keeps vacuum from removing rows. */
export const pressure: Scenario = {
  name: "pressure",
  title: "Beside a forgotten transaction",
  about:
    `${eventRate} events a second, published and delivered, and ${jobRate} jobs a second, created, claimed and completed, ` +
    "at fixed rates. Then a transaction with an old snapshot stays open, so that no dead row can be removed, and more " +
    "and more of them lie in the queues of the measured org and endpoint.",
  quick: { seconds: 5 },
  run: async (scope, { quick, say, seconds, warmUp }) => {
    const subject = await start(scope)
    await measure(subject, warmUp)
    const length = quick ? seconds : 4 * seconds
    const found: Array<Awaited<ReturnType<typeof measure>> & { readonly name: string }> = []
    const look = async (name: string) => {
      const made = { name, ...(await measure(subject, length)) }
      found.push(made)
      say(
        `${name}: ${amount(made.dead)} dead rows, ${figure(made.rate)} events/s, p50 ${figure(made.event50)} p99 ${figure(made.event99)} ms; ` +
          `jobs p50 ${figure(made.job50)} p99 ${figure(made.job99)} ms; PostgreSQL ${figure(made.databaseCpu)} cores, service ${figure(made.cpu)}`,
      )
    }
    await look("before")
    const forgotten = await subject.hold()
    await look("at once")
    for (const batches of quick ? [2] : [5, 15]) {
      await leaveDeadRows(subject, subject.lane, batches)
      // The rows are written to the disk now, not while the load is measured.
      await subject.query("CHECKPOINT")
      await measure(subject, 2)
      await look(`after ${batches * 50_000} more versions`)
    }
    await forgotten("COMMIT")
    const [before] = found
    const last = found.at(-1)!
    return {
      tables: [
        {
          title: "Beside a forgotten transaction",
          columns: [
            "",
            "dead rows",
            "events a second",
            "p50 ms",
            "p99 ms",
            "jobs p50 ms",
            "p99 ms",
            "PostgreSQL's cores",
          ],
          rows: found.map((one) => [
            one.name,
            amount(one.dead),
            figure(one.rate),
            figure(one.event50),
            figure(one.event99),
            figure(one.job50),
            figure(one.job99),
            figure(one.databaseCpu),
          ]),
        },
      ],
      bars: [
        atLeast("Events a second, last ÷ before", 0.9, last.rate / before!.rate),
        atMost("Publish to receiver, p50, last ÷ before", 1.1, last.event50 / before!.event50),
        atMost("A job, p50, last ÷ before", 1.1, last.job50 / before!.job50),
        // The looks beside the claims: at most a twentieth of a core for each queue that is looked at.
        atMost("PostgreSQL's cores, last − before", 0.25, last.databaseCpu - before!.databaseCpu),
      ],
      notes: [],
    }
  },
}
