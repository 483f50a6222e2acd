// The story of clients.test.ts, told by a client of openapi-typescript and openapi-fetch.
import createClient from "openapi-fetch"
import type { components, paths } from "./gatehouse.d.ts"

const baseUrl = process.env["GATEHOUSE_URL"]!
const unknown = "01KAHBMKZ3D2X7S5QN8W4V6R9T"
const openMode = createClient<paths>({ baseUrl })

interface Answer<Data, Failure> {
  readonly data?: Data
  readonly error?: Failure
  readonly response: Response
}
/** The body of an answer that is 2xx. */
const must = async <Data, Failure>(answer: Promise<Answer<Data, Failure>>): Promise<NonNullable<Data>> => {
  const { data, error, response } = await answer
  if (data === undefined || data === null) throw new Error(`${response.url}: ${JSON.stringify(error)}`)
  return data
}

const org = await must(openMode.POST("/api/v0/orgs", { body: { name: "Generated" } }))
const { orgId } = org
const path = { orgId }
const orgKey = await must(openMode.POST("/api/v0/orgs/{orgId}/keys", { params: { path }, body: { name: "backend" } }))
const asOrg = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${orgKey.key}` } })

const project = await must(asOrg.POST("/api/v0/projects", { body: { name: "docs", orgId } }))
const until = "2100-01-01T00:00:00.000Z"
const created = await must(
  asOrg.POST("/api/v0/keys", {
    body: {
      name: "gateway",
      projectId: project.projectId,
      permissions: ["docs.*"],
      expiresAt: until,
      credits: { remaining: 1_000_000_000_000 },
    },
  }),
)
const validated = await must(
  asOrg.POST("/api/v0/keys/validate", {
    body: { key: created.key, permissions: ["docs.read"], cost: 0, details: true },
  }),
)
const updated = await must(
  asOrg.PATCH("/api/v0/orgs/{orgId}/keys/{id}", {
    params: { path: { orgId, id: created.id } },
    body: { expiresAt: null },
  }),
)

const keys: Array<string> = []
let cursor: string | null = null
do {
  const query: { limit: number; cursor?: string } = cursor === null ? { limit: 1 } : { limit: 1, cursor }
  const page: components["schemas"]["ApiKeyPage"] = await must(
    asOrg.GET("/api/v0/orgs/{orgId}/keys", { params: { path, query } }),
  )
  keys.push(...page.keys.map(({ name }) => name))
  cursor = page.nextCursor
} while (cursor !== null)

await must(
  asOrg.POST("/v1/webhooks/create", {
    body: {
      url: process.env["RECEIVER_URL"]!,
      signing_secret: "a secret of the story",
      event_types: ["invoice.*"],
    },
  }),
)
const event = await must(
  asOrg.POST("/v1/events/publish", { body: { type: "invoice.paid", data: { amount: 42, note: null } } }),
)
const delivered = () =>
  must(asOrg.POST("/v1/webhooks/deliveries/list", { body: { event_id: event.event_id, state: "delivered" } }))
const deadline = performance.now() + 60_000
let [one] = (await delivered()).deliveries
while (one === undefined && performance.now() < deadline) {
  await new Promise((resolve) => setTimeout(resolve, 100))
  one = (await delivered()).deliveries[0]
}
const delivery = await must(asOrg.POST("/v1/webhooks/deliveries/get", { body: { delivery_id: one!.delivery_id } }))

const { job_id } = await must(asOrg.POST("/v1/jobs/create", { body: { workflow: "report", input: { pages: [1, 2] } } }))
await must(asOrg.POST("/v1/jobs/complete", { body: { job_id, result: { rows: 3 } } }))
const job = await must(asOrg.POST("/v1/jobs/get", { body: { job_id } }))

/** The status of an answer, and the code of its typed error. */
const failure = async (answer: Promise<Answer<unknown, { readonly code: string }>>) => {
  const { error, response } = await answer
  return [response.status, error!.code]
}
const stranger = createClient<paths>({ baseUrl, headers: { authorization: "Bearer svc_unknown" } })
const errors = [
  await failure(openMode.GET("/api/v0/orgs/{orgId}", { params: { path: { orgId: unknown } } })),
  await failure(asOrg.POST("/v1/webhooks/get", { body: { id: unknown } })),
  await failure(asOrg.POST("/v1/events/publish", { body: { type: "in voice", data: 1 } })),
  await failure(openMode.POST("/api/v0/orgs", { body: { name: "" } })),
  await failure(stranger.GET("/api/v0/orgs/{orgId}", { params: { path } })),
]

const story = {
  project: [project.name, project.subdomain],
  validated: [validated.name, validated.permissions, validated.credits, validated.expiresAt === until],
  cleared: [updated.expiresAt, updated.projectId === project.projectId],
  keys: keys.toSorted(),
  delivery: [
    delivery.event,
    delivery.state,
    delivery.attempts,
    delivery.job_id,
    delivery.attempt_log.map(({ status }) => status),
    JSON.parse(delivery.payload).data,
  ],
  job: [job.status, job.input, job.result, job.error],
  errors,
}
process.stdout.write(`${JSON.stringify(story)}\n`)
