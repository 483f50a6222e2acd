import { expect } from "@effect/vitest"
import { Arbitrary, Effect, Layer } from "effect"
import type { OutgoingHttpHeaders } from "node:http"
import { layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { constant, oneOf, text, weighted } from "./arbitraries.ts"
import { bodyFor, valid } from "./bodies.ts"
import { callers } from "./callers.ts"
import type { Described } from "./document.ts"
import { type Case, environment, faultOf, mayEnter, nameOf, perform, Provider, served } from "./probe.ts"
import { makeWorld } from "./world.ts"
import { slowness } from "../../support/slowness.ts"

/**
 * Promise (Documented responses): Any request to any operation, with any credential, gets a response of the
 * definition: no 5xx, no other status, shape or field, and nothing of another tenant.
 */

/** A segment of a path or a query, encoded as by a client, or not encoded. */
const encoded = (text: string) => encodeURIComponent(text.toWellFormed()).replace(/%25(00|ff|ED)/gi, "%$1")
const segment = weighted(
  [3, Arbitrary.map(text, encoded)],
  [1, oneOf("%2F", "%2e%2e", "..", ".", "%5C", "%ED%A0%80", "%ff", "%", "%zz", "%00", "a".repeat(3_000), ";a=b", "*")],
)
const asText = (value: unknown) => {
  const text = typeof value === "string" ? value : JSON.stringify(value)
  return /^@\w+:\w+@$/.test(text) ? text : encoded(text)
}
const orAnything = (value: Arbitrary.Arbitrary<unknown>) => weighted([3, Arbitrary.map(value, asText)], [1, segment])

const headers: Arbitrary.Arbitrary<OutgoingHttpHeaders> = weighted<OutgoingHttpHeaders>(
  [20, constant({})],
  [
    4,
    oneOf<OutgoingHttpHeaders>(
      { "content-type": "text/plain" },
      { "content-type": "application/json; charset=utf-16" },
      { "content-type": "application/json;charset=utf-8" },
      { "content-type": "application/x-www-form-urlencoded" },
      { "content-type": "multipart/form-data; boundary=x" },
      { "content-type": "application/json, text/html" },
      { "content-type": "" },
      { "content-encoding": "gzip" },
      { "content-encoding": "br" },
      { "transfer-encoding": "chunked" },
      { "x-http-method-override": "DELETE", "x-original-url": "/healthz", "x-rewrite-url": "/healthz" },
      { "x-forwarded-for": "127.0.0.1, ::1, x", "x-forwarded-host": "evil.example", forwarded: "for=127.0.0.1" },
      { "x-request-id": "\u00e9'\"<script>", traceparent: "00-zz", b3: "0", baggage: "a=%00" },
      { accept: "text/html;q=x", "accept-encoding": "x", "if-none-match": "*", range: "bytes=0-0", te: "trailers" },
      { origin: "https://evil.example", cookie: "a=b; __proto__=c", referer: "x" },
    ),
  ],
)

/** Requests to one operation, described in the same words in every run. */
const casesOf = (operation: Described): Arbitrary.Arbitrary<Case> => {
  const named = Object.keys(callers)
  const entering = named.filter((name) => mayEnter(operation, callers[name]!.kind, false))
  // A body that must be signed accepts no credential.
  const welcome = entering.length > 0 ? entering : named
  const inPath = operation.parameters.filter((parameter) => parameter.in === "path")
  const inQuery = operation.parameters.filter((parameter) => parameter.in === "query")
  const of = ({ name, schema }: Described["parameters"][number]) => orAnything(valid(schema, operation.resolve, name))
  const query = Arbitrary.all(
    inQuery.map((parameter) =>
      weighted(
        [2, constant("")],
        [3, Arbitrary.map(of(parameter), (value) => `${parameter.name}=${value}`)],
        [1, Arbitrary.map(segment, (value) => `${parameter.name}=1&${parameter.name}=${value}`)],
      ),
    ),
  )
  return Arbitrary.all({
    operation: constant({ method: operation.method, path: operation.path }),
    path: Arbitrary.all(Object.fromEntries(inPath.map((parameter) => [parameter.name, of(parameter)]))),
    query: Arbitrary.map(
      Arbitrary.all([query, oneOf("", "", "", "", "", "", "__proto__=1", "x=%00")]),
      ([known, other]) => [...known, other].filter((part) => part !== "").join("&"),
    ),
    body: bodyFor(operation),
    headers,
    caller: weighted([3, oneOf(...welcome)], [1, oneOf(...named)]),
  })
}
const servers = {
  "guarded mode on PostgreSQL": {
    server: TestServer.layer(Effect.flatMap(environment, (all) => onPostgres({ ...all, ...guarded }))),
    open: false,
    runs: 2_000,
  },
  "open mode on the embedded database": {
    server: TestServer.layer(Effect.map(environment, (all) => ({ ...all, ...embedded }))),
    open: true,
    runs: 1_600,
  },
}

/** ABUSE_SEED makes other requests, as each night does, and ABUSE_RUNS sets how many. */
const { ABUSE_SEED = "1", ABUSE_RUNS } = process.env

for (const [name, { server, open, runs }] of Object.entries(servers)) {
  layer(Layer.provideMerge(server, Provider.layer), { excludeTestServices: true })(name, (it) => {
    // Seen failing: text with NUL passed to the database (a 500), `AND org_id = …` removed from a job's look-up
    // (another tenant's data), expired keys accepted. Each was shrunk to a minimal request.
    it.effect(
      "any request to any operation with any credential gets a documented answer, and nothing of other tenants",
      function* () {
        const { send, logs } = yield* TestServer
        const world = yield* makeWorld(yield* Provider, open ? undefined : adminToken)
        const before = yield* world.theirs.snapshot
        const documented = yield* served
        const statuses = new Map<number, number>()
        const reached = new Set<string>()
        const result = yield* Arbitrary.checkEffect(
          Arbitrary.flatMap(oneOf(...[...documented.values()].map(casesOf)), (cases) => cases),
          Effect.fnUntraced(function* (request) {
            // A database on a busy machine may not answer in time: that is asked again, as clients do.
            const isUnavailable = ({ status }: { readonly status: number }) => status === 503
            const answer = yield* Effect.repeat(perform(request, world, open), { while: isUnavailable, times: 5 })
            statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
            if (answer.status === 200) reached.add(nameOf(request.operation))
            const fault = faultOf(documented.get(nameOf(request.operation))!, request, answer, world, open)
            return fault === undefined || (yield* Effect.fail(fault))
          }),
          { runs: ABUSE_RUNS === undefined ? runs : Number(ABUSE_RUNS), seed: ABUSE_SEED, concurrency: 8 },
        )
        expect(Arbitrary.formatCheckFailure(result), `ABUSE_SEED=${ABUSE_SEED} makes the same requests`).toBeUndefined()
        expect(yield* world.theirs.snapshot).toBe(before)
        expect((yield* send("GET", "/healthz")).status).toBe(200)
        // Generated documentation is at addresses where there is none.
        const isExpected = (line: string) => line.includes('"Documentation is not fetched: ')
        const faults = logs()
          .split("\n")
          .filter((line) => !isExpected(line))
        expect(faults.join("\n")).not.toMatch(/A request failed|could not be|cannot be/)
        // The run must reach more than refusals at the door.
        for (const status of [200, 400, 401, 404, 415]) expect(statuses.get(status), String(status)).toBeGreaterThan(5)
        expect(reached.size, [...reached].join()).toBeGreaterThan(documented.size * 0.4)
      },
      600_000 * slowness,
    )
  })
}
