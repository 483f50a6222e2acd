import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { must } from "../operations.ts"

/**
 * Promise (Documentation): Questions of readers are kept only if the owner wants it, within a bound for each project.
 * None from before an erasure or a removal comes back, and no log line or span has them.
 */

const admin = { as: adminToken }
const docsPages = { keys: "# Keys\n\nTo rotate a key, create a second one." }
/** Nothing answers there: these chats bring their pages. */
const docsZipUrl = "https://docs.example.com/docs.zip"

interface Kept {
  readonly id: string
  readonly question: string
  readonly found: boolean
  readonly thumb: string | null
}

/** A project that keeps questions, unless the settings say otherwise. */
const makeProject = Effect.fnUntraced(function* (settings: object = { keepQuestions: true }) {
  const { send } = yield* TestServer
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" }, ...admin })
  const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "docs", orgId }, ...admin })
  const { key } = yield* must(send, "POST", "/api/v0/keys", { json: { name: "k", projectId }, ...admin })
  const path = `/api/v0/projects/${projectId}/docs`
  yield* must(send, "PUT", path, { json: { docsZipUrl, ...settings }, ...admin })
  /** Asks; returns the id of the answer's message. */
  const ask = Effect.fnUntraced(function* (content: string) {
    const answer = yield* send("POST", "/api/svc/chat", {
      json: { messages: [{ role: "user", content }], docsPages },
      as: key,
    })
    expect(answer.status).toBe(200)
    return /"messageId":"(\w+)"/.exec(answer.text)?.[1]
  })
  const list = (query = "") =>
    Effect.map(
      must(send, "GET", `${path}/questions${query}`, admin),
      ({ questions }) => questions as unknown as ReadonlyArray<Kept>,
    )
  const kept = (count: number) => until("the questions", list(), (found) => found.length === count)
  return { path, key: key!, ask, list, kept }
})

layer(TestServer.layer(guarded), { excludeTestServices: true })("questions of readers", (it) => {
  it.effect("are kept when the owner wants it, with whether something was found, but for small talk", function* () {
    const { logs, send, spans } = yield* TestServer
    const [project, off] = [yield* makeProject(), yield* makeProject({})]
    const id = yield* project.ask("How do I rotate a key?")
    yield* project.ask("Who bakes marzipanbread?")
    yield* project.ask("how do i rotate a key")
    expect(yield* project.ask("thanks!")).toBeUndefined()
    expect(yield* off.ask("How do I rotate a key?")).toBeUndefined()
    const all = yield* project.kept(3)
    expect(all.map(({ found, question }) => [question, found])).toEqual([
      ["how do i rotate a key", true],
      ["Who bakes marzipanbread?", false],
      ["How do I rotate a key?", true],
    ])
    expect(all[2]).toMatchObject({ id, thumb: null })
    expect((yield* project.list("?found=false")).map(({ question }) => question)).toEqual(["Who bakes marzipanbread?"])
    const most = yield* must(send, "GET", `${project.path}/questions/most-asked?limit=1`, admin)
    expect(most["questions"]).toMatchObject([{ question: "how do i rotate a key", times: 2, notFound: 0 }])
    expect(yield* off.list()).toEqual([])
    yield* must(send, "DELETE", `${project.path}/questions`, admin)
    expect(yield* project.list()).toEqual([])
    expect(`${logs()}${spans()}`).not.toContain("marzipan")
  })

  it.effect("have the feedback of their readers", function* () {
    const { send } = yield* TestServer
    const [project, other] = [yield* makeProject(), yield* makeProject()]
    const messageId = yield* project.ask("How do I rotate a key?")
    const rate = (json: object, as?: string) => send("POST", "/api/svc/chat/feedback", { json, as })
    const up = yield* rate({ messageId, thumb: "up" }, project.key)
    expect([up.status, up.json]).toEqual([200, { recorded: true }])
    expect((yield* project.kept(1))[0]!.thumb).toBe("up")
    yield* rate({ messageId, thumb: "down" }, project.key)
    // A rating that comes while its question is being written is written with the next ones.
    const down = yield* until("the rating", project.list("?thumb=down"), (found) => found.length === 1)
    expect(down.map(({ id }) => id)).toEqual([messageId])
    const refused = [
      rate({ messageId, thumb: "up" }, other.key),
      rate({ messageId, thumb: "up" }),
      rate({ messageId, thumb: "up" }, adminToken),
      rate({ messageId, thumb: "sideways" }, project.key),
    ]
    const statuses = yield* Effect.forEach(
      refused,
      Effect.map(({ status }) => status),
    )
    expect(statuses).toEqual([404, 401, 403, 400])
    for (const method of ["GET", "DELETE"] as const) {
      expect((yield* send(method, `${project.path}/questions`, { as: project.key })).status).toBe(403)
    }
  })
})
