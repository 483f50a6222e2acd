import { eventBody } from "./fill.ts"
import type { Query } from "./postgres.ts"

/** What the bench of the console writes into the service's own tables, past its interface. */

const org = (n: string) => `'org' || lpad(((${n}) % $1::int)::text, 23, '0')`
const endpoint = (n: string) => `'endpoint' || lpad((${n})::text, 18, '0')`

/** Adds orgs with endpoints, each with as many due deliveries: all backlogged, as the service keeps a backlog. */
export const addFullBacklog = async (
  query: Query,
  { deliveries, endpoints, orgs }: { readonly orgs: number; readonly endpoints: number; readonly deliveries: number },
): Promise<void> => {
  await query(
    `INSERT INTO orgs (id, name, created_at) SELECT ${org("o")}, 'bench', now() FROM generate_series(0, $1::int - 1) o`,
    [orgs],
  )
  await query(
    `INSERT INTO webhook_endpoints (id, org_id, lane, url, active, secret, created_at, updated_at)
      SELECT ${endpoint("e")}, ${org("e")}, ${endpoint("e")}, 'https://bench.invalid/' || e, true, 'none', now(), now()
      FROM generate_series(1, $2::int) e`,
    [orgs, endpoints],
  )
  const events = deliveries / (endpoints / orgs)
  await query(
    `INSERT INTO events (id, org_id, type, body, created_at)
      SELECT 'event' || lpad(n::text, 21, '0'), ${org("n")}, 'job.completed', $3, now() FROM generate_series(1, $2::int) n`,
    [orgs, events, eventBody],
  )
  await query(
    `INSERT INTO pending_deliveries (delivery_id, org_id, event_id, lane, attempts, tries, due_at, backlogged, bytes,
        created_at, updated_at)
      SELECT 'delivery' || lpad((n::bigint * 1000000 + e)::text, 18, '0'), ${org("n")}, 'event' || lpad(n::text, 21, '0'),
        ${endpoint("e")}, 0, 0, now() - interval '1 hour', true, $4::int, now(), now()
      FROM generate_series(1, $2::int) n, generate_series(1, $3::int) e WHERE e % $1::int = n % $1::int`,
    [orgs, events, endpoints, eventBody.length],
  )
}

/** Adds failed attempts of every endpoint in each of the last 24 hours. */
export const addFailures = (
  query: Query,
  { endpoints, orgs }: { readonly orgs: number; readonly endpoints: number },
): Promise<unknown> =>
  query(
    `INSERT INTO endpoint_failures (org_id, endpoint_id, every, at, count, last_at, last_status)
      SELECT ${org("e")}, ${endpoint("e")}, 'hour', date_trunc('hour', now()) - h * interval '1 hour', (e * 7919 + h) % 100,
        now(), 503
      FROM generate_series(0, 23) h, generate_series(1, $2::int) e`,
    [orgs, endpoints],
  )
