import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { chunksOf, messageOf } from "../../support/uiMessages.ts"
import { until } from "../../support/wait.ts"
import { zip } from "../../support/zip.ts"
import { faultOfError, must } from "../operations.ts"

interface Docs {
  readonly state: string
  readonly stored: { readonly pages: number; readonly bytes: number } | null
  readonly failure: { readonly error: string; readonly nextAt: string | null } | null
}

const zipOf = (markdown: string) => zip([{ path: "guides/keys.md", content: markdown }])
const admin = { as: adminToken }

/** A host of one zip. */
const makeHost = Effect.gen(function* () {
  const host = yield* makeReceiver()
  const serve = (markdown: string | undefined) =>
    host.behave(markdown === undefined ? { status: 404 } : { status: 200, body: zipOf(markdown) })
  return { url: `${host.url}/docs.zip`, serve }
})

/** A project with a key, and what it asks. */
const makeProject = Effect.gen(function* () {
  const { send } = yield* TestServer
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" }, ...admin })
  const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "docs", orgId }, ...admin })
  const key = (yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, ...admin }))["key"]!
  const orgKey = (yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "k" }, ...admin }))["key"]!
  const path = `/api/v0/projects/${projectId}/docs`
  const read = Effect.map(must(send, "GET", path, admin), (docs) => docs as unknown as Docs)
  return {
    orgId: orgId!,
    projectId: projectId!,
    key,
    orgKey,
    path,
    put: (json: object, as = adminToken) => send("PUT", path, { json, as }),
    stored: (pages: number) =>
      until("the documentation", read, ({ state, stored }) => state === "stored" && stored?.pages === pages),
    failed: until("the failure", read, ({ failure }) => failure !== null),
    ask: Effect.fnUntraced(function* (content: string, more: object = {}) {
      const json = { messages: [{ role: "user", content }], ...more }
      const answer = yield* send("POST", "/api/svc/chat", { json, as: key })
      expect(answer.status, answer.text.slice(0, 200)).toBe(200)
      return (yield* Effect.promise(async () => messageOf(await chunksOf(answer.text)))).text
    }),
  }
})

layer(TestServer.layer({ ...guarded, ALLOW_PRIVATE_NETWORKS: "true" }), { excludeTestServices: true })(
  "documentation of a project",
  (it) => {
    it.effect("is fetched after it was set, and chats with the project's key are answered from it", function* () {
      const { send } = yield* TestServer
      const [host, project] = [yield* makeHost, yield* makeProject]
      host.serve("# Keys\n\n## Rotation\n\nTo rotate a key, create a second one.")
      expect(yield* project.ask("How do I rotate a key?")).toContain("no documentation was given")
      const put = yield* project.put({ docsZipUrl: host.url, docsUrl: "https://docs.example.com/" }, project.orgKey)
      expect(put.status).toBe(200)
      expect(put.json).toEqual({
        projectId: project.projectId,
        docsZipUrl: host.url,
        docsUrl: "https://docs.example.com/",
        public: false,
        keepQuestions: false,
        updatedAt: expect.any(String),
        state: "waiting",
        stored: null,
        failure: null,
      })
      yield* project.stored(1)
      expect(yield* project.ask("How do I rotate a key?")).toContain("> To rotate a key, create a second one.")
      const own = { docsPages: { other: "# Other\n\nKeys rotate by themselves." } }
      expect(yield* project.ask("How do I rotate a key?", own)).not.toContain("second one")

      host.serve("# Keys\n\n## Rotation\n\nTo rotate a key, call rotate.")
      yield* project.put({ docsZipUrl: host.url })
      yield* project.stored(1)
      expect(yield* project.ask("How do I rotate a key?")).toContain("> To rotate a key, call rotate.")

      expect((yield* send("DELETE", project.path, admin)).json).toEqual({ deleted: true })
      expect(yield* project.ask("How do I rotate a key?")).toContain("no documentation was given")
      expect((yield* send("GET", project.path, admin)).status).toBe(404)
    })

    it.effect("that cannot be fetched says why, and what was stored stays", function* () {
      const [host, project] = [yield* makeHost, yield* makeProject]
      host.serve("# Keys\n\nTo rotate a key, create a second one.")
      yield* project.put({ docsZipUrl: host.url })
      yield* project.stored(1)
      host.serve(undefined)
      yield* project.put({ docsZipUrl: host.url })
      const { failure, state, stored } = yield* project.failed
      expect(failure?.error).toBe(`docsZipUrl: ${host.url} was answered with the status 404.`)
      expect(failure?.nextAt).not.toBeNull()
      expect({ state, pages: stored?.pages }).toEqual({ state: "waiting", pages: 1 })
      expect(yield* project.ask("How do I rotate a key?")).toContain("> To rotate a key")
    })

    it.effect("is managed by the administrator and the org's key; to others it does not exist", function* () {
      const { send } = yield* TestServer
      const [host, project, other] = [yield* makeHost, yield* makeProject, yield* makeProject]
      host.serve("# Keys")
      const json = { docsZipUrl: host.url }
      for (const method of ["GET", "PUT", "DELETE"] as const) {
        const body = method === "PUT" ? { json } : {}
        const foreign = yield* send(method, project.path, { ...body, as: other.orgKey })
        expect([foreign.status, faultOfError(foreign)]).toEqual([404, undefined])
        expect((yield* send(method, project.path, { ...body, as: project.key })).status).toBe(403)
        expect((yield* send(method, project.path, body)).status).toBe(401)
        const unknown = yield* send(method, "/api/v0/projects/nothing/docs", { ...body, ...admin })
        expect([unknown.status, unknown.text]).toEqual([404, foreign.text])
      }
      for (const wrong of [{}, { docsZipUrl: "https://a.example/{branch}.zip" }, { ...json, keepQuestion: true }]) {
        expect((yield* project.put(wrong)).status).toBe(400)
      }
    })
  },
)
