import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { isFromThisMachine } from "#src/http/clientAddress.ts"
import { it, layer } from "../../support/it.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import { faultOfError } from "../operations.ts"
import { makeTenant } from "../tenants.ts"

const metricsToken = "metrics-of-the-tests-0123456789"
const bearer = (token: string) => ({ authorization: `Bearer ${token}` })
/** The header of a proxy for a client on another machine. */
const stranger = { "x-forwarded-for": "203.0.113.7" }

/** Sends these headers. An answer other than 200 must have the documented shape without any metric. */
const ask = Effect.fnUntraced(function* (headers: Readonly<Record<string, string>>) {
  const { send } = yield* TestServer
  const answer = yield* send("GET", "/metrics", { headers })
  if (answer.status === 200) expect(answer.headers["content-type"]).toMatch(/^text\/plain; version=0\.0\.4/)
  else {
    expect(faultOfError(answer)).toBeUndefined()
    expect(answer.text).not.toContain("gatehouse_")
    expect(answer.headers["www-authenticate"]).toBe(answer.status === 401 ? "Bearer" : undefined)
  }
  return answer.status
})

const cases = Effect.fnUntraced(function* (expected: ReadonlyArray<readonly [object, number]>) {
  for (const [headers, status] of expected) {
    const name = JSON.stringify(headers)
    expect(yield* ask(headers as Readonly<Record<string, string>>), name).toBe(status)
  }
})

layer(TestServer.layer(guarded), { excludeTestServices: true })(
  "metrics in guarded mode without METRICS_TOKEN",
  (it) => {
    // Seen failing when everyone who reached the port could read them.
    it.effect("are readable from loopback and by the administrator", function* () {
      const { key } = yield* makeTenant(adminToken)
      yield* cases([
        [{}, 200],
        [bearer(adminToken), 200],
        [stranger, 401],
        [{ ...stranger, "x-forwarded-for": "127.0.0.1" }, 401],
        [{ forwarded: "for=203.0.113.7" }, 401],
        [{ ...stranger, ...bearer(adminToken) }, 200],
        [{ ...stranger, ...bearer(`${adminToken}0`) }, 401],
        [{ ...stranger, ...bearer(metricsToken) }, 401],
        [{ ...stranger, ...bearer("undefined") }, 401],
        [{ ...stranger, authorization: adminToken }, 401],
        [{ ...stranger, "x-api-key": adminToken }, 401],
        [{ ...stranger, "x-api-key": key }, 403],
        [{ ...stranger, ...bearer(key) }, 403],
        // A credential that is sent is checked, also from this machine.
        [bearer(`${adminToken}0`), 401],
      ])
    })
  },
)

layer(TestServer.layer({ ...guarded, METRICS_TOKEN: metricsToken, TRUST_PROXY: "1" }), { excludeTestServices: true })(
  "metrics in guarded mode with METRICS_TOKEN",
  (it) => {
    it.effect("are readable with that token and by the administrator, from anywhere", function* () {
      const { logs, send, spans } = yield* TestServer
      const { key } = yield* makeTenant(adminToken)
      yield* cases([
        [bearer(metricsToken), 200],
        [{ ...stranger, ...bearer(metricsToken) }, 200],
        [bearer(adminToken), 200],
        [{}, 401],
        [stranger, 401],
        [{ "x-api-key": metricsToken }, 401],
        [bearer(metricsToken.slice(0, -1)), 401],
        [bearer(`${metricsToken}0`), 401],
        [bearer(key), 403],
      ])
      // The token gives access to nothing else.
      expect((yield* send("GET", "/api/v0/orgs", { as: metricsToken })).status).toBe(401)
      expect(logs() + spans()).not.toContain(metricsToken)
    })
  },
)

layer(TestServer.layer({ METRICS_TOKEN: metricsToken }), { excludeTestServices: true })(
  "metrics in open mode",
  (it) => {
    it.effect("need no credential", () => cases([[{}, 200]]))
  },
)

describe("whether a request comes from this machine", () => {
  it.each(["127.0.0.1", "127.255.0.3", "::1", "::ffff:127.0.0.1"])("%s", (address) => {
    expect(isFromThisMachine(address, {})).toBe(true)
    for (const name of ["x-forwarded-for", "forwarded", "x-real-ip", "via"]) {
      expect(isFromThisMachine(address, { [name]: "127.0.0.1" }), name).toBe(false)
    }
  })
  it.each([undefined, "10.0.0.1", "203.0.113.127", "::", "::ffff:10.0.0.1", "fe80::1", "1270.0.0.1", "2001:db8::1"])(
    "not %s",
    (address) => {
      expect(isFromThisMachine(address, {})).toBe(false)
    },
  )
})
