import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { layer } from "../../support/it.ts"
import { makeOidcProvider, rs256, rsaKey, type OidcProvider } from "../../support/oidc.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { faultOfError, keysOf, must } from "../operations.ts"

/** Promise (Nothing secret in logs) */

class Provider extends Context.Service<Provider, OidcProvider>()("test/Provider") {
  static readonly layer = Layer.effect(Provider, makeOidcProvider())
}

const environment = Effect.map(Provider, ({ issuer, audience }) => ({
  ...guarded,
  GITHUB_OIDC_ISSUER: issuer,
  OIDC_AUDIENCE: `https://other.example, ${audience}`,
  OIDC_ALLOWED_OWNERS: "Octo-Org,acme",
}))

const servers = {
  "the embedded database": TestServer.layer(Effect.map(environment, (all) => ({ ...all, ...embedded }))),
  PostgreSQL: TestServer.layer(Effect.flatMap(environment, onPostgres)),
}

const pullRequest = {
  event_name: "pull_request",
  ref: "refs/pull/7/merge",
  head_ref: "add-search",
  base_ref: "main",
}

/** Claims of a repository and a run of their own. */
let repositories = 1000
const repository = (name: string) => ({
  repository: `octo-org/${name}`,
  repository_id: String(++repositories),
  run_id: String(repositories * 10),
})

for (const [database, server] of Object.entries(servers)) {
  layer(Layer.provideMerge(server, Provider.layer), { excludeTestServices: true })(
    `register-deployment on ${database}`,
    (it) => {
      const tokens: Array<string> = []
      const answers: Array<string> = []
      /** Registers a push to main with these claims; returns the answer. */
      const register = Effect.fnUntraced(function* (claims?: object, ...rest: [header?: object, kid?: string]) {
        const [header, kid] = rest
        const { send } = yield* TestServer
        const provider = yield* Provider
        const signer = kid === undefined ? undefined : rs256(rsaKey(kid))
        const token = yield* provider.sign(claims as Record<string, unknown>, header as Record<string, unknown>, signer)
        tokens.push(token)
        const answer = yield* send("POST", "/api/v0/register-deployment", { json: {}, as: token })
        answers.push(answer.text)
        return answer
      })
      const read = (path: string) =>
        Effect.flatMap(TestServer, ({ send }) => must(send, "GET", `/api/v0${path}`, { as: adminToken }))
      const project = (id: string) => read(`/projects/${id}`)
      const deployments = (id: string) =>
        Effect.map(read(`/projects/${id}/deployments`), (page) => page["deployments"] as unknown as Array<object>)

      it.effect("a push creates the project, its default branch and its current deployment", function* () {
        const claims = repository("Docs.Site")
        const answer = yield* register({ ...claims, environment: "production" })
        expect(answer.status, answer.text).toBe(200)
        const { projectId } = answer.json as { projectId: string }
        expect(answer.json).toEqual({ ok: true, projectId, branch: "main" })

        const [deployment] = yield* deployments(projectId)
        const made = yield* project(projectId)
        expect(made).toMatchObject({
          name: "Docs.Site",
          subdomain: "docs-site-octo-org",
          currentDeploymentId: (deployment as { id: string }).id,
          defaultBranch: "main",
          hostOwner: "octo-org",
          hostRepo: "Docs.Site",
        })
        expect(deployment).toMatchObject({
          projectId,
          orgId: made["orgId"],
          provider: "github",
          branch: "main",
          ref: "refs/heads/main",
          sha: "6dcb09b5b57875f334f61aebed695e2e4193db5e",
          preview: false,
          pullRequest: null,
          runId: claims.run_id,
          runAttempt: 2,
          workflow: "docs",
          actor: "octocat",
          eventName: "push",
          environment: "production",
        })
        expect(String(keysOf(deployment))).toBe(
          "actor,branch,createdAt,environment,eventName,id,orgId,preview,previewReason,projectId,provider,pullRequest,ref,runAttempt," +
            "runId,sha,workflow",
        )
        const { orgs } = yield* read("/orgs")
        expect(orgs).toMatchObject([{ orgId: made["orgId"], name: "Default" }])
      })

      it.effect("a pull request is a preview on its head branch, and does not become current", function* () {
        const claims = repository("docs")
        const first = yield* register({ ...claims, ...pullRequest })
        const { projectId } = first.json as { projectId: string }
        expect(first.json).toEqual({ ok: true, projectId, branch: "add-search", preview: true })
        expect(yield* project(projectId)).toMatchObject({ defaultBranch: null, currentDeploymentId: null })
        const [deployment] = yield* deployments(projectId)
        expect(deployment).toMatchObject({
          preview: true,
          pullRequest: 7,
          branch: "add-search",
          eventName: "pull_request",
        })

        const push = yield* register({ ...claims, run_id: `${claims.run_id}1` })
        expect(push.json).toEqual({ ok: true, projectId, branch: "main" })
        const current = (yield* project(projectId))["currentDeploymentId"]
        expect(current).toMatch(/^[0-7]/)
        const side = yield* register({ ...claims, run_id: `${claims.run_id}2`, ref: "refs/heads/side" })
        expect(side.json).toEqual({ ok: true, projectId, branch: "side" })
        const tag = yield* register({ ...claims, run_id: `${claims.run_id}3`, ref: "refs/tags/v1", ref_type: "tag" })
        expect(tag.json).toEqual({ ok: true, projectId, branch: "v1", preview: true })
        expect((yield* project(projectId))["currentDeploymentId"]).toBe(current)
        expect(yield* deployments(projectId)).toMatchObject([
          { branch: "v1" },
          { branch: "side" },
          { branch: "main", id: current },
          { branch: "add-search" },
        ])
      })

      it.effect(
        "a repeated run is one deployment, even at the same time, and another attempt is another",
        function* () {
          const claims = repository("again")
          const same = yield* Effect.replicateEffect(register(claims), 5, { concurrency: "unbounded" })
          expect(new Set(same.map(({ text }) => text)).size).toBe(1)
          const { projectId } = same[0]!.json as { projectId: string }
          const [deployment] = yield* deployments(projectId)
          expect(yield* deployments(projectId)).toHaveLength(1)
          expect((yield* register(claims)).text).toBe(same[0]!.text)
          expect(yield* deployments(projectId)).toEqual([deployment])
          yield* register({ ...claims, run_attempt: "3" })
          expect(yield* deployments(projectId)).toMatchObject([{ runAttempt: 3 }, { runAttempt: 2 }])
        },
      )

      it.effect("a project that was linked first gets its repository's run, also after a rename", function* () {
        const { send } = yield* TestServer
        const { projectId } = yield* must(send, "POST", "/api/v0/projects", {
          json: { name: "linked" },
          as: adminToken,
        })
        const json = { hostOwner: "OCTO-ORG", hostRepo: "Linked" }
        yield* must(send, "PATCH", `/api/v0/projects/${projectId}`, { json, as: adminToken })
        const claims = repository("linked")
        expect((yield* register(claims)).json).toMatchObject({ projectId })
        const renamed = { ...claims, repository: "octo-org/renamed", run_id: `${claims.run_id}1` }
        expect((yield* register(renamed)).json).toMatchObject({ projectId })
        expect(yield* project(projectId!)).toMatchObject({
          hostOwner: "octo-org",
          hostRepo: "renamed",
          name: "linked",
        })
        const reused = yield* register({ ...repository("renamed") })
        expect([reused.status, faultOfError(reused)]).toEqual([401, undefined])
      })

      it.effect("a body that is no JSON object in UTF-8 is a 400 also behind a right token", function* () {
        const { send } = yield* TestServer
        const token = yield* (yield* Provider).sign(repository("bodies"))
        const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" }
        for (const [body, said] of [
          [Buffer.from('{"\u00ff":1}', "latin1"), "not UTF-8"],
          ['{"a":1,"a":2}', "twice"],
          ["[]", "must be a JSON object"],
          ["{", "not valid JSON"],
          ["", "must be a JSON object"],
        ] as const) {
          const answer = yield* send("POST", "/api/v0/register-deployment", { body, headers })
          expect([answer.status, answer.text], said).toEqual([400, expect.stringContaining(said)])
        }
      })

      it.effect("any fault of the token is a documented 401, without the token", function* () {
        const { send } = yield* TestServer
        const bad: ReadonlyArray<readonly [object, object?, string?]> = [
          [{ aud: "https://elsewhere.example" }],
          [{ iss: "https://elsewhere.example" }],
          [{ exp: 1_700_000_000 }],
          [{ exp: undefined }],
          [{ nbf: 4_000_000_000 }],
          [{ repository: "octo-org/a/b" }],
          [{ repository: "acme/docs" }],
          [{ repository: "stranger/docs", repository_owner: "stranger" }],
          [{ repository_id: undefined }],
          [{ event_name: "pull_request_target" }],
          [{}, { alg: "none" }],
          [{}, { kid: "unknown" }],
          [{}, {}, "another-key"],
        ]
        for (const [claims, header, kid] of bad) {
          const answer = yield* register({ ...repository("bad"), ...claims }, header, kid)
          expect(answer.status, JSON.stringify([claims, header, kid])).toBe(401)
          expect(faultOfError(answer)).toBeUndefined()
        }
        const provider = yield* Provider
        const token = yield* provider.sign(repository("bad"))
        tokens.push(token)
        for (const headers of [
          {},
          { authorization: "" },
          { authorization: token },
          { authorization: `Basic ${token}` },
          { authorization: `Bearer ${token} ${token}` },
          { authorization: `Bearer ${token.slice(0, -8)}` },
          { "x-api-key": token },
          { authorization: `Bearer ${adminToken}` },
        ]) {
          const answer = yield* send("POST", "/api/v0/register-deployment", { json: {}, headers })
          expect([answer.status, faultOfError(answer)]).toEqual([401, undefined])
          answers.push(answer.text)
        }
        // A body that names another repository is ignored.
        const json = { repository: "acme/other", projectId: "x", branch: "x" }
        const honest = yield* send("POST", "/api/v0/register-deployment", { json, as: token })
        expect(honest.json).toMatchObject({ ok: true, branch: "main" })
        expect((yield* project((honest.json as { projectId: string }).projectId))["name"]).toBe("bad")
        const inBody = yield* send("POST", "/api/v0/register-deployment", { json: { token: token.slice(0, 900) } })
        expect(inBody.status).toBe(401)
        answers.push(honest.text, inBody.text)
      })

      it.effect("no token, and no signature of one, is in a table, a log line, a span or an answer", function* () {
        const { sql, logs, spans } = yield* TestServer
        const rows = yield* sql<{ row: string }>`
            SELECT d::text AS row FROM deployments d UNION ALL SELECT p::text FROM projects p`
        const places = [logs(), spans(), answers.join("\n"), rows.map(({ row }) => row).join("\n")]
        expect(tokens.length).toBeGreaterThan(20)
        expect(spans()).toContain("Deployments.register")
        for (const token of tokens) {
          const parts = token.split(".").filter((part) => part !== "")
          for (const place of places) {
            for (const part of [token, ...parts.slice(1)]) expect(place.includes(part)).toBe(false)
          }
        }
      })
    },
  )
}

/** A provider whose keys are at an address with a query. */
const keysByQuery = Effect.map(Provider, ({ issuer, audience }) => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-providers-"))
  const jwks = `${issuer}/elsewhere?policy=hidden-in-the-query`
  const OIDC_PROVIDERS = join(folder, "providers.json")
  writeFileSync(OIDC_PROVIDERS, JSON.stringify([{ preset: "github", issuer, jwks }]))
  return { ...guarded, OIDC_PROVIDERS, OIDC_AUDIENCE: audience, OIDC_ALLOWED_OWNERS: "octo-org" }
})

layer(Layer.provideMerge(TestServer.layer(keysByQuery), Provider.layer), { excludeTestServices: true })(
  "keys of a provider at an address with a query",
  (it) => {
    // Seen failing: without spansWithoutQuery, url.full and url.query had it.
    it.effect("the span of a request to a provider has no query", function* () {
      const [provider, { send, spans }] = [yield* Provider, yield* TestServer]
      const answer = yield* send("POST", "/api/v0/register-deployment", { json: {}, as: yield* provider.sign() })
      expect(answer.status, answer.text).toBe(200)
      expect(provider.requests.map(({ path }) => path)).toEqual(["/elsewhere?policy=hidden-in-the-query"])
      expect(spans()).toContain("/elsewhere")
      expect(spans()).not.toContain("hidden-in-the-query")
    })
  },
)
