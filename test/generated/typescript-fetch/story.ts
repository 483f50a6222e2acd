// The story of clients.test.ts, told by a client that openapi-generator generates.
import * as gatehouse from "./client"

declare const process: { readonly env: Record<string, string>; readonly stdout: { write(text: string): void } }

const unknown = "01KAHBMKZ3D2X7S5QN8W4V6R9T"
const client = (accessToken?: string) =>
  new gatehouse.Configuration({ basePath: process.env["GATEHOUSE_URL"]!, ...(accessToken ? { accessToken } : {}) })

/** The status of an answer, and the code of its error. */
const failure = async (answer: Promise<unknown>) => {
  const error = await answer.then(
    () => new Error("not an error"),
    (error: unknown) => error,
  )
  if (!(error instanceof gatehouse.ResponseError)) throw error
  const { code }: gatehouse.ModelError | gatehouse.V1Error = await error.response.json()
  return [error.response.status, code]
}

const tell = async () => {
  const openMode = client()
  const orgs = new gatehouse.OrgsApi(openMode)
  const { orgId } = await orgs.orgsCreate({ createOrg: { name: "Generated" } })
  const createOrgKey = { name: "backend" }
  const { key } = await new gatehouse.APIKeysApi(openMode).keysCreateForOrg({ orgId, createOrgKey })
  const asOrg = client(key)

  const project = await new gatehouse.ProjectsApi(asOrg).projectsCreate({ createProject: { name: "docs", orgId } })
  const keys = new gatehouse.APIKeysApi(asOrg)
  const until = new Date("2100-01-01T00:00:00.000Z")
  const created = await keys.keysCreateForProject({
    createProjectKey: {
      name: "gateway",
      projectId: project.projectId,
      permissions: ["docs.*"],
      expiresAt: until,
      credits: { remaining: 1_000_000_000_000 },
    },
  })
  const validated = await keys.keysValidate({
    validateKey: { key: created.key, permissions: ["docs.read"], cost: 0, details: true },
  })
  const updated = await keys.keysUpdate({ orgId, id: created.id, updateKey: { expiresAt: null } })

  const names: Array<string> = []
  let cursor: string | null = null
  do {
    const page: gatehouse.ApiKeyPage = await keys.keysList({ orgId, limit: 1, ...(cursor && { cursor }) })
    names.push(...page.keys.map(({ name }) => name))
    cursor = page.nextCursor
  } while (cursor !== null)

  const endpoints = new gatehouse.WebhookEndpointsApi(asOrg)
  await endpoints.webhooksCreate({
    createWebhookEndpoint: {
      url: process.env["RECEIVER_URL"]!,
      signing_secret: "a secret of the story",
      event_types: ["invoice.*"],
    },
  })
  const events = new gatehouse.EventsApi(asOrg)
  const event = await events.eventsPublish({ publishEvent: { type: "invoice.paid", data: { amount: 42, note: null } } })
  const deliveries = new gatehouse.DeliveriesApi(asOrg)
  const listDeliveries = { event_id: event.event_id, state: gatehouse.ListDeliveriesStateEnum.Delivered }
  const deadline = performance.now() + 60_000
  let [one] = (await deliveries.deliveriesList({ listDeliveries })).deliveries
  while (one === undefined && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 100))
    one = (await deliveries.deliveriesList({ listDeliveries })).deliveries[0]
  }
  const delivery = await deliveries.deliveriesGet({ getDelivery: { delivery_id: one!.delivery_id } })

  const jobs = new gatehouse.JobsApi(asOrg)
  const { job_id } = await jobs.jobsCreate({ createJob: { workflow: "report", input: { pages: [1, 2] } } })
  await jobs.jobsComplete({ completeJob: { job_id, result: { rows: 3 } } })
  const job = await jobs.jobsGet({ getJob: { job_id } })

  const story = {
    project: [project.name, project.subdomain],
    validated: [
      validated.name,
      validated.permissions,
      validated.credits,
      validated.expiresAt?.getTime() === until.getTime(),
    ],
    cleared: [updated.expiresAt, updated.projectId === project.projectId],
    keys: names.sort(),
    delivery: [
      delivery.event,
      delivery.state,
      delivery.attempts,
      delivery.job_id,
      delivery.attempt_log.map(({ status }) => status),
      JSON.parse(delivery.payload).data,
    ],
    job: [job.status, job.input, job.result, job.error],
    errors: [
      await failure(orgs.orgsGet({ orgId: unknown })),
      await failure(endpoints.webhooksGet({ getWebhookEndpoint: { id: unknown } })),
      await failure(events.eventsPublish({ publishEvent: { type: "in voice", data: 1 } })),
      await failure(orgs.orgsCreate({ createOrg: { name: "" } })),
      await failure(new gatehouse.OrgsApi(client("svc_unknown")).orgsGet({ orgId })),
    ],
  }
  process.stdout.write(`${JSON.stringify(story)}\n`)
}
void tell()
