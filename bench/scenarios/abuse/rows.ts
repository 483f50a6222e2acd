import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { addJobs, addSchedules } from "../../support/fill.ts"
import type { Query } from "../../support/postgres.ts"
import type { Scope } from "../../support/scope.ts"
import { type Service, times } from "../../support/service.ts"
import type { AttackName } from "./attacks.ts"

export interface SetUp {
  readonly scope: Scope
  readonly service: Service
  readonly query: Query
  readonly orgId: string
  readonly key: string
  readonly quick: boolean
}

/** A row of the table: an attack, and the setup of its org. Returns the ids of its endpoints. */
export interface Row {
  readonly name: string
  readonly attack: AttackName
  readonly prepare?: (setUp: SetUp) => Promise<ReadonlyArray<string> | void>
}

/** 1 MiB of JSON with only small values. */
const emptyObjects = `[${"{},".repeat(349_000)}{}]`

/** Creates endpoints at a receiver that reads and answers, or hangs. */
const endpoints =
  (count: number, hangs: boolean) =>
  async ({ key, scope, service }: SetUp) => {
    const server = createServer((request, response) => {
      request.resume().on("end", () => void (hangs || response.end()))
    })
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    scope.defer(() => void server.close().closeAllConnections())
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    return times(count, async () => {
      const endpoint = { url, signing_secret: "s" }
      return (await service.call(key, "/v1/webhooks/create", endpoint))["webhook_endpoint_id"] as string
    })
  }

export const rows: ReadonlyArray<Row> = [
  {
    name: "10 jobs/list of 25 × 1 MiB of {},",
    attack: "jobLists",
    prepare: ({ orgId, query }) => addJobs(query, orgId, 25, emptyObjects),
  },
  {
    name: "10 schedules/list of 40 × 1 MiB of {},",
    attack: "scheduleLists",
    prepare: ({ orgId, query }) => addSchedules(query, orgId, 40, emptyObjects),
  },
  { name: "30 schedules of 30 February", attack: "impossibleDates" },
  { name: "800 unfinished 1 MB bodies, no credential", attack: "strangersBodies" },
  { name: "800 unfinished 1 MB bodies, a project key", attack: "tenantsBodies" },
  { name: "1,000 pipelined GET /docs", attack: "docs" },
  { name: "20 × 1,000 GET /docs, never read", attack: "docsUnread" },
  { name: "3,000 claims that wait", attack: "claims" },
  {
    name: "40 clients beside a million queued jobs",
    attack: "manyJobs",
    prepare: ({ orgId, query, quick }) => addJobs(query, orgId, quick ? 100_000 : 1_000_000, null),
  },
  { name: "1 MiB result to 600 endpoints", attack: "largeResult", prepare: endpoints(600, false) },
  { name: "12 chats with 7.9 MB of pages", attack: "chats" },
  { name: "3,000 webhooks/test of 10 endpoints", attack: "tests", prepare: endpoints(10, true) },
  { name: "10 jobs/create of 1 MiB of {},", attack: "manyValues" },
  { name: "10 register-deployment of 1 MiB of {},", attack: "strangersValues" },
]
