import { Effect } from "effect"
import { HttpApi } from "effect/http-api"
import { Api } from "#src/http/api/Api.ts"
import { adminToken, TestServer } from "../../support/server.ts"
import { bodyOf, must, type Operation, operations, type OperationName } from "../operations.ts"
import { makeTenant } from "../tenants.ts"
import { makeThings, webhookBody, webhookEntries } from "../webhooks/webhookOperations.ts"

export interface Listed {
  readonly id: string
  readonly method: string
  readonly path: string
}
/** Every operation of the definition. */
export const all: Array<Listed> = []
HttpApi.reflect(Api, {
  onGroup: () => {},
  onEndpoint: ({ endpoint, group }) => {
    const path = endpoint.path.replace(/:(\w+)/g, "{$1}")
    all.push({ id: `${group.identifier}.${endpoint.identifier}`, method: endpoint.method, path })
  },
})

export type Ids = Readonly<Record<string, string>>

/** The repository owner that belongs to an org. */
const ownerOf = (orgId: string) => `octo-${orgId}`

const alert = { name: "a", condition: "endpoint_deactivated", target: "slack", url: "https://localhost:9/" }

/** Bodies of requests that neither table of operations has, by the id of the operation. */
const otherBodies: Record<string, (ids: Ids) => object> = {
  "chat.answer": () => ({ messages: [{ role: "user", content: "hello" }] }),
  "chat.feedback": ({ projectId }) => ({ messageId: projectId, thumb: "up" }),
  "keys.importKeys": () => ({ keys: [{ hash: "0".repeat(64), algorithm: "sha256", name: "k" }] }),
  "alerts.create": () => alert,
  "alerts.update": () => ({ name: "n" }),
  "serviceAlerts.create": () => alert,
  "serviceAlerts.update": () => ({ name: "n" }),
  "roles.put": () => ({ permissions: ["models.*"] }),
  "keys.token": ({ key }) => ({ key }),
  "docs.put": () => ({ docsZipUrl: "https://localhost:9/docs.zip" }),
  "docs.mcp": () => ({ jsonrpc: "2.0", id: 1, method: "ping" }),
  "portal.link": () => ({}),
  "portal.listLinks": () => ({}),
  "portal.revokeLink": ({ projectId }) => ({ link_id: projectId }),
  "projects.putLink": ({ orgId }) => ({ provider: "github", hostOwner: ownerOf(orgId!), hostRepo: "docs" }),
}

/** A request of an operation on a tenant's resources. */
export const requestOf = ({ id, method, path }: Listed, ids: Ids) => {
  const platform = Object.entries(operations as Record<string, Operation>)
  const [name] = platform.find(([, one]) => one.path === path && one.method === method) ?? []
  const [webhook] = webhookEntries.find(([, one]) => one.path === path) ?? []
  const known = name !== undefined ? bodyOf(name as OperationName, ids) : webhook && webhookBody(webhook, ids)
  const json = known ?? otherBodies[id]?.(ids)
  // The operations with a parameter that must be there.
  const query = id === "orgs.find" ? "?text=a" : ""
  return {
    path: path.replace(/\{(\w+)\}/g, (_, name: string) => ids[name]!) + query,
    ...(json === undefined ? {} : { json }),
  }
}

/** A tenant with one of everything, and the ids. */
export const makeWorld = Effect.gen(function* () {
  const { send } = yield* TestServer
  const tenant = yield* makeTenant(adminToken)
  const owners = [ownerOf(tenant.orgId)]
  yield* must(send, "PATCH", `/api/v0/orgs/${tenant.orgId}`, { json: { owners }, as: adminToken })
  const project = yield* must(send, "POST", "/api/v0/projects", {
    json: { name: "p", orgId: tenant.orgId },
    as: adminToken,
  })
  const { projectId } = project as { projectId: string }
  const projectKey = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, as: adminToken })
  const things: Ids = yield* makeThings(tenant, "https://localhost:9/")
  const { key, keyId, orgId } = tenant
  // No deployment has this id, because no CI run has registered one.
  const ids: Ids = { ...things, orgId, projectId, deploymentId: projectId, id: keyId, key, keyId }
  return { tenant, ids, projectKey: String(projectKey["key"]) }
})
