import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { generateKeyPairSync, sign } from "node:crypto"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { it } from "../../support/it.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { must } from "../operations.ts"

const as = adminToken
const path = "/api/v0/secret-scanning/github"

const makeSigner = (curve = "P-256") => {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: curve })
  return {
    pem: publicKey.export({ type: "spki", format: "pem" }).toString(),
    sign: (body: string) => sign("sha256", Buffer.from(body), privateKey).toString("base64"),
  }
}
const [github, stranger, otherCurve] = [makeSigner(), makeSigner(), makeSigner("P-384")]

/** A server of GitHub's public keys that counts requests. */
const publisher = Effect.acquireRelease(
  Effect.promise(async () => {
    const state = { requests: 0, status: 200 }
    const server = createServer((_request, response) => {
      state.requests++
      const keys = [
        { key_identifier: "current", key: github.pem, is_current: true },
        { key_identifier: "p384", key: otherCurve.pem, is_current: false },
        { key_identifier: "broken", key: "no key", is_current: false },
      ]
      response.writeHead(state.status).end(JSON.stringify({ public_keys: keys }))
    })
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
    return { state, server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/keys` }
  }),
  ({ server }) => Effect.sync(() => void server.close()),
)

const makeWorld = Effect.gen(function* () {
  const { state, url } = yield* publisher
  const environment = { ...guarded, GITHUB_SECRET_SCANNING_KEYS_URL: url }
  const { send } = Context.get(yield* Layer.build(TestServer.layer(environment)), TestServer)
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "o" }, as })
  const keysPath = `/api/v0/orgs/${orgId}/keys`
  const report = (body: string, headers: Readonly<Record<string, string>>) =>
    send("POST", path, { body, headers: { "content-type": "application/json", ...headers } })
  return {
    send,
    state,
    keysPath,
    report,
    orgId,
    create: must(send, "POST", keysPath, { json: { name: "k" }, as }),
    validate: (key: string) =>
      Effect.map(send("POST", "/api/v0/keys/validate", { json: { key }, as }), ({ status }) => status),
    reportSigned: (body: string) =>
      report(body, { "github-public-key-identifier": "current", "github-public-key-signature": github.sign(body) }),
  }
})

const token = (key: string) => ({
  token: key,
  type: "gatehouse_api_key",
  url: "https://github.com/a/b",
  source: "commit",
})

it.live("reported keys are disabled permanently, and each token gets a label", function* () {
  const { create, keysPath, orgId, reportSigned, send, state, validate } = yield* makeWorld
  const [leaked, other] = [yield* create, yield* create]
  const [key, id] = [leaked["key"]!, leaked["id"]!]
  const unknown = "svc_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0TyBiU"
  expect([yield* validate(key), yield* validate(other["key"]!)]).toEqual([200, 200])
  const told = (json: object, at: string) => must(send, "POST", `/v1/${at}`, { json, as: other["key"]! })
  const url = "https://hooks.example.com/gatehouse"
  yield* told({ url, signing_secret: "s", event_types: ["key.leaked"] }, "webhooks/create")
  const body = JSON.stringify([{ ...token(key), more: 1 }, token(unknown), { token: "svc_no", type: "x" }, token(key)])
  const answer = yield* reportSigned(body)
  expect(answer.status, answer.text).toBe(200)
  const { events } = (yield* told({ type: "key.leaked" }, "events/list")) as unknown as {
    events: Array<{ event_id: string }>
  }
  expect(events).toHaveLength(1)
  const event = yield* told({ event_id: events[0]!.event_id }, "events/get")
  expect(JSON.stringify(event)).toContain(id)
  expect(JSON.stringify(event)).not.toContain(key)
  const label = (token_raw: string, label: string, token_type = "gatehouse_api_key") => ({
    token_raw,
    token_type,
    label,
  })
  expect(answer.json).toEqual([
    label(key, "true_positive"),
    label(unknown, "false_positive"),
    label("svc_no", "false_positive", "x"),
    label(key, "true_positive"),
  ])
  expect([yield* validate(key), yield* validate(other["key"]!)]).toEqual([401, 200])
  const enable = yield* send("PATCH", `${keysPath}/${id}`, { json: { enabled: true }, as })
  expect([enable.status, (enable.json as { code: string }).code]).toEqual([409, "conflict"])
  const { entries } = (yield* send("GET", `/api/v0/orgs/${orgId}/audit`, { as })).json as {
    entries: ReadonlyArray<{ action: string; actor: string; target: string; details: object }>
  }
  expect(entries.filter(({ action }) => action === "key.leaked")).toMatchObject([
    { actor: "service", target: id, details: { reporter: "github", url: "https://github.com/a/b" } },
  ])
  yield* reportSigned(body)
  expect(state.requests).toBe(1)
})

it.live("a report without GitHub's signature of these exact bytes is a 401, and changes nothing", function* () {
  const { create, report, state, validate } = yield* makeWorld
  const { key } = yield* create
  const body = JSON.stringify([token(key!)])
  const signed = (id: string, signature: string) => ({
    "github-public-key-identifier": id,
    "github-public-key-signature": signature,
  })
  const good = github.sign(body)
  const attacks: ReadonlyArray<readonly [sent: string, headers: Readonly<Record<string, string>>]> = [
    [body, {}],
    [body, { "github-public-key-identifier": "current" }],
    [body, { "github-public-key-signature": good }],
    [body, signed("current", stranger!.sign(body))],
    [`${body} `, signed("current", good)],
    [body.replace("commit", "Commit"), signed("current", good)],
    [body, signed("unknown", good)],
    [body, signed("broken", good)],
    [body, signed("__proto__", good)],
    [body, signed("p384", otherCurve!.sign(body))],
    [body, signed("current", "")],
    [body, signed("current", "AAAA")],
    [body, signed("current", "not base64!")],
    [body, signed("current", good.repeat(50))],
    [body, signed("x".repeat(5_000), good)],
    // Not JSON: the signature is still checked first.
    ["[", signed("current", good)],
  ]
  for (const [sent, headers] of attacks) {
    const answer = yield* report(sent, headers)
    expect(answer.status, JSON.stringify(headers).slice(0, 100)).toBe(401)
  }
  expect(yield* validate(key!)).toBe(200)
  // Unknown identifiers do not cause repeated fetches.
  expect(state.requests).toBeLessThanOrEqual(2)
})

it.live("a signed body that is no report is a 400; without GitHub's keys a report is a 503", function* () {
  const world = yield* makeWorld
  for (const body of ["[", "{}", '[{"token":1}]', JSON.stringify(Array(1_001).fill(token("x")))]) {
    expect((yield* world.reportSigned(body)).status, body.slice(0, 50)).toBe(400)
  }
  expect((yield* world.reportSigned("[]")).json).toEqual([])
  const down = yield* makeWorld
  down.state.status = 500
  const { key } = yield* down.create
  const answer = yield* down.reportSigned(JSON.stringify([token(key!)]))
  expect([answer.status, answer.headers["retry-after"]]).toEqual([503, "1"])
  expect(yield* down.validate(key!)).toBe(200)
})
