import { request } from "undici"
import { startArrivals } from "../../support/arrivals.ts"
import { addDeliveries, addKeys, addQueuedJobs, settle } from "../../support/fill.ts"
import { folder, startPostgres } from "../../support/postgres.ts"
import { amount, atMost, figure, type Found, type RunOptions } from "../../support/result.ts"
import { type Scope, scoped } from "../../support/scope.ts"
import { type Json, makeTenant, startService } from "../../support/service.ts"
import { median } from "../../support/stats.ts"

/** How often each operation is measured beside each number of rows, in one round. */
const samples = 40
/** How often each operation runs before the first round. */
const warmUps = 40

type Subject = Awaited<ReturnType<typeof makeSubject>>

/** A service and a database, with one org that has this many rows of each kind. */
const makeSubject = async (
  scope: Scope,
  home: string,
  postgres: Awaited<ReturnType<typeof startPostgres>>,
  size: number,
) => {
  const url = await postgres.database(`rows${size}`)
  const query = await postgres.connect(url)
  const service = await startService(scope, home, { DATABASE_URL: url, ADMIN_TOKEN: "" })
  const { key, orgId, projectId } = await makeTenant(service)
  const arrivals = await startArrivals(scope)
  await service.call(key, "/v1/webhooks/create", { url: arrivals.url, signing_secret: "s" })
  const [endpoint] = await query("SELECT id FROM webhook_endpoints WHERE org_id = $1", [orgId])
  await addDeliveries(query, orgId, size / 2, "delivered")
  await addDeliveries(query, orgId, size / 2, "failed")
  await addQueuedJobs(query, orgId, size)
  await addKeys(query, orgId, projectId, size)
  await settle(query)
  const call = (path: string, json: Json = {}) => service.call(key, `/v1/${path}`, json)
  const get = async (path: string): Promise<Json> => {
    const response = await request(service.url + path)
    const text = await response.body.text()
    if (response.statusCode !== 200) throw new Error(`${path} answered ${response.statusCode}: ${text}`)
    return JSON.parse(text) as Json
  }
  return { size, service, key, orgId, projectId, endpointId: endpoint!["id"] as string, call, get }
}

const create = ({ call }: Subject) => call("jobs/create", { workflow: "bench" })
const endpointOf = ({ endpointId }: Subject) => ({ webhook_endpoint_id: endpointId })

/** Each operation, and its preparation, which is not measured. */
const operations: Readonly<Record<string, (subject: Subject, made: Json) => Promise<unknown>>> = {
  "create a job": create,
  "get a job": ({ call }, { job_id }) => call("jobs/get", { job_id }),
  "claim a job": ({ call }) => call("jobs/claim", { workflow: "bench" }),
  "claim, none queued": ({ call }) => call("jobs/claim", { workflow: "none" }),
  "complete a job": ({ call }, { job_id }) => call("jobs/complete", { job_id }),
  "list jobs": ({ call }) => call("jobs/list", { limit: 50 }),
  "list failed jobs": ({ call }) => call("jobs/list", { status: "failed", limit: 50 }),
  "list endpoints": ({ call }) => call("webhooks/list"),
  "get an endpoint": ({ call, endpointId }) => call("webhooks/get", { id: endpointId }),
  "update an endpoint": ({ call, endpointId }) => call("webhooks/update", { id: endpointId, description: "bench" }),
  "list deliveries": (subject) => subject.call("webhooks/deliveries/list", { ...endpointOf(subject), limit: 50 }),
  "list failed deliveries": (subject) =>
    subject.call("webhooks/deliveries/list", { ...endpointOf(subject), state: "failed", limit: 50 }),
  "list pending deliveries": (subject) =>
    subject.call("webhooks/deliveries/list", { ...endpointOf(subject), state: "pending", limit: 50 }),
  "recover the last second": (subject) =>
    subject.call("webhooks/deliveries/recover", {
      ...endpointOf(subject),
      since: new Date(Date.now() - 1_000).toISOString(),
    }),
  "create a key": ({ projectId, service }) => service.manage("/api/v0/keys", { name: "bench", projectId }),
  "validate a key": ({ key, service }) => service.manage("/api/v0/keys/validate", { key }),
  "list keys": ({ get, orgId }) => get(`/api/v0/orgs/${orgId}/keys?limit=50`),
  "get the org": ({ get, orgId }) => get(`/api/v0/orgs/${orgId}`),
  "create a project": ({ orgId, service }) => service.manage("/api/v0/projects", { name: "bench", orgId }),
  "list projects": ({ get, orgId }) => get(`/api/v0/projects?orgId=${orgId}&limit=50`),
  "list the audit log": ({ get, orgId }) => get(`/api/v0/orgs/${orgId}/audit?limit=50`),
}

/** Every operation of an org beside a million of its own rows of each kind, and beside a thousand. */
export const ownRows = (_: Scope, { quick, rounds, say }: RunOptions): Promise<Found> =>
  scoped(async (scope) => {
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const subjects: Array<Subject> = []
    for (const size of [1_000, quick ? 100_000 : 1_000_000]) {
      subjects.push(await makeSubject(scope, home, postgres, size))
      say(`${amount(size)} rows of each kind are there`)
    }
    const rows: Array<{ name: string; few: number; many: number; ratio: number }> = []
    for (const [name, operation] of Object.entries(operations)) {
      const times = subjects.map(() => Array.from({ length: rounds }, () => [] as Array<number>))
      for (let n = -warmUps; n < rounds * samples; n++) {
        // The order alternates.
        for (const at of n % 2 === 0 ? [0, 1] : [1, 0]) {
          const subject = subjects[at]!
          const made = await create(subject)
          const since = performance.now()
          await operation(subject, made)
          if (n >= 0) times[at]![Math.floor(n / samples)]!.push(performance.now() - since)
        }
      }
      const [few, many] = times.map((rounds) => rounds.map(median))
      const ratio = median(many!.map((time, round) => time / few![round]!))
      rows.push({ name, few: median(few!), many: median(many!), ratio })
      say(`${name}: ${figure(median(few!))} → ${figure(median(many!))} ms, × ${figure(ratio)}`)
    }
    const [few, many] = subjects.map(({ size }) => amount(size))
    return {
      tables: [
        {
          title: "One request of an org, beside rows of its own",
          columns: ["", `beside ${few}, ms`, `beside ${many}, ms`, "ratio"],
          rows: rows.map(({ name, few, many, ratio }) => [name, figure(few), figure(many), figure(ratio)]),
        },
      ],
      bars: rows.map(({ name, ratio }) => atMost(`${name}, beside ${many} ÷ beside ${few}`, 1.5, ratio)),
      notes: [
        "Rows of its own: that many keys, queued jobs of another workflow, and finished jobs with an event and a " +
          "delivery (half delivered, half failed) of one endpoint. One request at a time; in open mode.",
      ],
    }
  })
