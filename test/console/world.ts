import { Context, Effect, Layer } from "effect"
import { must } from "../http/operations.ts"
import { makeOidcProvider, type OidcProvider } from "../support/oidc.ts"
import { adminToken, TestServer } from "../support/server.ts"
import { consoleWith } from "./support.ts"

const as = adminToken

/** The CI provider that the service of a test trusts. */
export class Ci extends Context.Service<Ci, OidcProvider>()("test/console/Ci") {
  static readonly layer = Layer.effect(Ci, makeOidcProvider())
}
const environment = Effect.map(Ci, ({ audience, issuer }) => ({ GITHUB_OIDC_ISSUER: issuer, OIDC_AUDIENCE: audience }))

/** The console over each database, with a CI provider. */
export const consolesWithCi = {
  "the embedded database": Layer.provideMerge(consoleWith(environment, "embedded"), Ci.layer),
  PostgreSQL: Layer.provideMerge(consoleWith(environment, "postgres"), Ci.layer),
}

/** An operation of the administrator. */
export const call = (method: string, path: string, json?: object, headers: Record<string, string> = {}) =>
  Effect.flatMap(TestServer, ({ send }) => must(send, method, path, { as, json, headers }))

/** An operation under /v1 for an org. */
export const callFor = (orgId: string, path: string, json: object = {}) =>
  call("POST", `/v1/${path}`, json, { "x-org-id": orgId })

export const createOrg = (name: string) => Effect.map(call("POST", "/api/v0/orgs", { name }), ({ orgId }) => orgId!)

let owners = 0

/** Registers runs of a repository of its own, in the org. */
export const repositoryOf = Effect.fnUntraced(function* (orgId: string) {
  const id = String(70_000 + ++owners)
  const owner = `owner-${id}`
  const claims = { repository: `${owner}/docs`, repository_owner: owner, repository_owner_id: id, repository_id: id }
  yield* call("PATCH", `/api/v0/orgs/${orgId}`, { owners: [owner] })
  const { send } = yield* TestServer
  const { sign } = yield* Ci
  /** A run; returns its deployment and project. */
  return Effect.fnUntraced(function* (run_id: string, more: object = {}) {
    const token = yield* sign({ ...claims, run_id, run_attempt: "1", ...more })
    const registered = yield* must(send, "POST", "/api/v0/register-deployment", { json: {}, as: token })
    return { projectId: registered["projectId"]! }
  })
})

/** Claims of the run of a pull request. */
export const pullRequest = (branch: string) => ({
  event_name: "pull_request",
  ref: "refs/pull/7/merge",
  head_ref: branch,
  base_ref: "main",
})
