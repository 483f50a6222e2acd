/* oxlint-disable vitest/no-standalone-expect, vitest/valid-expect -- it.effect is a test, and expect takes a message */
import { expect, layer } from "@effect/vitest"
import { Arbitrary, Effect } from "effect"
import { adminToken, guarded, onPostgres, TestServer } from "../support/server.ts"
import type { Send } from "../support/wire.ts"
import { bodyFor, either, faultOf, oneOf, text } from "./arbitraries.ts"
import { faultOfError, must, type Operation, operations, pathOf } from "./operations.ts"

const all: ReadonlyArray<Operation> = Object.values(operations)

/** What of a body is exchanged. */
const fields = [
  "name",
  "projectId",
  "orgId",
  "key",
  "expiresAt",
  "rateLimit",
  "overlapSeconds",
  "subdomain",
  "hostOwner",
  "hostRepo",
  "defaultBranch",
]

/** One segment of a path: as a client would encode it, or not encoded at all. */
const segment = Arbitrary.map(text, (text) => encodeURIComponent(text.toWellFormed()).replace(/%25(00|ff|ED)/gi, "%$1"))

const requests = Arbitrary.flatMap(oneOf(...all), (operation) =>
  Arbitrary.all({
    operation: Arbitrary.Constant(operation),
    body: bodyFor(operation, fields),
    /** For each id of the path: one that exists, or anything. */
    ids: Arbitrary.all({
      orgId: either(oneOf("own", "foreign"), segment),
      projectId: either(oneOf("own", "foreign"), segment),
      id: either(oneOf("own", "foreign"), segment),
    }),
    query: either(
      oneOf("", "?limit=1", "?limit=0", "?cursor=01KAHBMKZ3D2X7S5QN8W4V6R9T", "?orgId=x"),
      Arbitrary.map(
        Arbitrary.all([oneOf("limit", "cursor", "orgId", "x"), segment]),
        ([name, value]) => `?${name}=${value}`,
      ),
    ),
    idempotencyKey: either(oneOf(undefined, "a", "b", "c"), text),
    caller: either(oneOf("nobody", "administrator", "org", "other", "project"), text),
  }),
)
type Case = typeof requests extends Arbitrary.Arbitrary<infer A> ? A : never

const world = Effect.fnUntraced(function* (send: Send, as: string | undefined) {
  const create = (path: string, json: object) => must(send, "POST", `/api/v0${path}`, { json, as })
  const tenant = Effect.fnUntraced(function* (name: string) {
    const { orgId } = yield* create("/orgs", { name })
    const { projectId } = yield* create("/projects", { name, orgId })
    const { key, id } = yield* create(`/orgs/${orgId}/keys`, { name })
    const project = yield* create("/keys", { name, projectId })
    return { ids: { orgId: orgId!, projectId: projectId!, id: id! }, key: key!, projectKey: project["key"]! }
  })
  return { own: yield* tenant("own"), foreign: yield* tenant("foreign") }
})
type World = Effect.Success<ReturnType<typeof world>>

/** Bytes that a header can carry. */
const headerSafe = (text: string) => text.replace(/[^\t\x20-\x7e\x80-\xff]/g, "?")

const credential = ({ own, foreign }: World, caller: string) =>
  ({ nobody: undefined, administrator: adminToken, org: own.key, other: foreign.key, project: own.projectKey })[
    caller
  ] ?? (caller === "nobody" ? undefined : headerSafe(caller))

const perform = (send: Send, there: World, { operation, body, ids, query, idempotencyKey, caller }: Case) => {
  const id = (name: "orgId" | "projectId" | "id") => {
    const given = ids[name]
    return given === "own" || given === "foreign" ? there[given].ids[name] : given || "x"
  }
  const path = pathOf(operation, { orgId: id("orgId"), projectId: id("projectId"), id: id("id") })
  return send(operation.method, path + query, {
    body,
    headers: {
      "content-type": "application/json",
      ...(idempotencyKey === undefined ? {} : { "idempotency-key": headerSafe(idempotencyKey) }),
    },
    as: credential(there, caller),
  })
}

const servers = {
  "guarded, embedded": { server: TestServer.layer(guarded), as: adminToken },
  "open, PostgreSQL": { server: TestServer.layer(onPostgres()), as: undefined },
}

for (const [name, { server, as }] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(name, (it) => {
    it.effect("any JSON at any operation with any credential gets a documented answer", () =>
      Effect.gen(function* () {
        const { send } = yield* TestServer
        const there = yield* world(send, as)
        const statuses = new Map<number, number>()
        const result = yield* Arbitrary.checkEffect(
          requests,
          Effect.fnUntraced(function* (request) {
            const answer = yield* perform(send, there, request)
            statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
            const fault = faultOf(request.operation, answer, faultOfError)
            return fault === undefined || (yield* Effect.fail(fault))
          }),
          { runs: 500 },
        )
        // The message has what to replay the run with.
        expect(Arbitrary.formatCheckFailure(result)).toBeUndefined()
        for (const status of [200, 400, 401, 404]) expect(statuses.get(status), String(status)).toBeGreaterThan(5)
      }),
    )
  })
}
