import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { FetchHttpClient } from "effect/http"
import { once } from "node:events"
import { createServer } from "node:https"
import { writeFileSync } from "node:fs"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { register } from "#src/sdk/register.ts"
import { selfSigned } from "../support/certificate.ts"
import { runCli } from "../support/cli.ts"
import { freshFolder } from "../support/databases.ts"
import { it, layer } from "../support/it.ts"
import { closedPort, makeReceiver } from "../support/receiver.ts"
import { adminToken, guarded, TestServer } from "../support/server.ts"

/**
 * Promise (Nothing secret in logs): The SDK, the command line and the gateway follow no redirect with a credential,
 * and `listen` none of a receiver.
 */

it.effect("reports when no service runs at the address", function* () {
  const url = `http://127.0.0.1:${yield* closedPort}`
  expect(yield* runCli(["projects", "list", "--json"], { env: { GATEHOUSE_URL: url } })).toEqual({
    out: "",
    err: `gatehouse: ${url} does not answer (ECONNREFUSED). Start the service, or set --url or GATEHOUSE_URL to its address\n`,
    code: 1,
  })
})

// Seen failing: the message had only the code of OpenSSL.
it.live("names the variable for a private CA when the certificate is of an unknown one", function* () {
  const { cert, key } = selfSigned({ names: ["127.0.0.1"] })
  const server = createServer({ cert, key }, (_request, response) => response.end())
  yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
  yield* Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening"))
  const url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  for (const command of [
    ["projects", "list"],
    ["api", "GET", "/healthz"],
  ]) {
    const ended = yield* runCli([...command, "--url", url])
    expect([ended.code, ended.err]).toEqual([1, expect.stringContaining("NODE_EXTRA_CA_CERTS names the file of a")])
  }
})

it.effect("reports another service at the address", function* () {
  const { behave, url } = yield* makeReceiver()
  for (const reply of [
    { status: 404, body: "<html>" },
    { status: 200, body: "{}" },
    { status: 502, headers: { "content-type": "application/json" }, body: '{"error":1}' },
  ]) {
    behave(reply)
    const ended = yield* runCli(["projects", "list", "--url", url])
    expect(ended, JSON.stringify(reply)).toMatchObject({ out: "", code: 1 })
    expect(ended.err).toBe(
      `gatehouse: ${url} answered with status ${reply.status}, but the response is not Gatehouse's. Set --url or GATEHOUSE_URL to the address of the service\n`,
    )
  }
})

// Seen failing: fetch followed it, and sent the key.
it.live("a redirect is not followed with a credential, by the commands, by api, and by a registration", function* () {
  const [elsewhere, redirecting] = [yield* makeReceiver(), yield* makeReceiver()]
  redirecting.behave({ status: 307, headers: { location: `${elsewhere.url}/there` } })
  const env = { GATEHOUSE_TOKEN: "svc_secret" }
  for (const command of [
    ["projects", "list"],
    ["api", "POST", "/api/v0/projects"],
  ]) {
    const ended = yield* runCli([...command, "--url", redirecting.url], { env })
    expect([ended.code, ended.err], command.join(" ")).toEqual([
      1,
      // Seen failing: `api` said that a server that redirects does not answer.
      expect.stringContaining(`${redirecting.url}: It redirects to ${elsewhere.url}/there, and a redirect is not`),
    ])
  }
  const environment = { GATEHOUSE_ID_TOKEN: "a.b.c" }
  const refused = yield* Effect.flip(
    register({ url: redirecting.url, environment }).pipe(Effect.provide(FetchHttpClient.layer)),
  )
  expect(refused.message).toContain(`It redirects to ${elsewhere.url}/there`)
  expect([redirecting.received.length, elsewhere.received]).toEqual([3, []])
})

// Seen failing: the error of the runtime has the credential in it.
it.live("a credential that no header can have is not sent, and not printed", function* () {
  const server = yield* makeReceiver()
  for (const token of ["svc_secret\nsecret", "a-secret\r\nsecret", "a-secret\u20ac"]) {
    for (const command of [
      ["projects", "list"],
      ["api", "GET", "/api/v0/projects"],
    ]) {
      const ended = yield* runCli([...command, "--url", server.url], { env: { GATEHOUSE_TOKEN: token } })
      expect([ended.code, ended.err]).toEqual([1, expect.stringMatching(/characters that no header can have/)])
      expect(ended.out + ended.err).not.toContain("secret")
    }
  }
  const environment = { GATEHOUSE_ID_TOKEN: "a.secret\nsecret.c" }
  const failed = yield* Effect.flip(
    register({ url: server.url, environment }).pipe(Effect.provide(FetchHttpClient.layer)),
  )
  expect(failed.message).toContain("characters that no header can have")
  expect(String(failed)).not.toContain("secret")
  expect(server.received).toEqual([])
})

// Seen failing: each sentence of a request that failed had the address, and the error of the runtime beside it.
it.live("an address with a password is refused, and not printed", function* () {
  const url = "https://user:s3cret@gatehouse.example"
  for (const command of [
    ["projects", "list", "--url", url],
    ["api", "GET", "/api/v0/projects", "--url", url],
    ["login", "--url", url],
    ["listen", "--forward-to", url],
    ["import", "svix", "--from", url],
  ]) {
    const ended = yield* runCli(command, { env: { GATEHOUSE_IMPORT_TOKEN: "token", GATEHOUSE_TOKEN: "token" } })
    expect([ended.code, ended.err], command[0]).toEqual([2, expect.stringMatching(/no user name or password/)])
    expect(ended.out + ended.err).not.toContain("s3cret")
  }
  const environment = { GATEHOUSE_ID_TOKEN: "a.b.c" }
  const failed = yield* Effect.flip(register({ url, environment }).pipe(Effect.provide(FetchHttpClient.layer)))
  expect(failed.message).toBe("the address of the service must have no user name or password")
})

// Seen failing: it asked for the endpoints, whatever the project.
it.live("an import refuses a project where it has none", function* () {
  const command = ["import", "svix", "--from", "http://127.0.0.1:1", "--project", "p"]
  const ended = yield* runCli(command, { env: { GATEHOUSE_IMPORT_TOKEN: "token" } })
  expect([ended.code, ended.err]).toEqual([2, expect.stringContaining("--project is for the import from Convoy alone")])
})

layer(TestServer.layer(guarded), { excludeTestServices: true })("a guarded server", (it) => {
  it.effect("without a credential, and with an invalid one", function* () {
    const { url } = yield* TestServer
    const without = yield* runCli(["projects", "list", "--url", url])
    expect(without.err).toContain("Set GATEHOUSE_TOKEN to an API key (svc_…), or to the server's ADMIN_TOKEN.")
    expect(without.code).toBe(1)
    const wrong = yield* runCli(["projects", "list", "--url", url], { env: { GATEHOUSE_TOKEN: "a-wrong-token" } })
    expect(wrong.err).toContain("The credential is the value of GATEHOUSE_TOKEN.")
    expect(wrong.err).not.toContain("a-wrong-token")
    // An empty variable, as CI sets missing secrets.
    const empty = yield* runCli(["projects", "list", "--url", url], { env: { GATEHOUSE_TOKEN: "" } })
    expect(empty.err).toBe(without.err)
  })

  it.effect("an operation for API keys only says so, and a key to validate is no credential", function* () {
    const { url } = yield* TestServer
    const jobs = ["jobs", "create", "nightly", "--url", url]
    const without = yield* runCli(jobs)
    expect(without.err).toContain(
      "Set GATEHOUSE_TOKEN to an API key (svc_…), or to the server's ADMIN_TOKEN with --org.",
    )
    const admin = yield* runCli(jobs, { env: { GATEHOUSE_TOKEN: adminToken } })
    expect(admin.err).toContain("The credential is the value of GATEHOUSE_TOKEN: name the org to act for with --org")
    const unknown = yield* runCli(jobs, { env: { GATEHOUSE_TOKEN: "svc_unknown" } })
    expect(unknown.err).toContain("The credential is the value of GATEHOUSE_TOKEN.")
    const asked = yield* runCli(["keys", "validate", "--url", url], { stdin: "svc_unknown" })
    expect(asked.err).toBe("gatehouse: The key is not valid.\n")
  })
})

it.effect.each([
  ["[{,]", "must be valid JSON"],
  ['{"keys":[]}', "must be an array"],
  [
    '[{"hash":"x","algorithm":"md5","name":"a"}]',
    "0.algorithm must be one of sha256, sha512, bcrypt, scrypt, argon2id",
  ],
  ['[{"algorithm":"sha256","name":"a"}]', "0.hash is required"],
] as const)("keys import says in words what is wrong with the file %s", ([text, fault]) =>
  Effect.gen(function* () {
    const file = join(yield* freshFolder("empty"), "keys.json")
    writeFileSync(file, text)
    expect(yield* runCli(["keys", "import", file, "--org", "01KAHBMKZ3D2X7S5QN8W4V6R9T"])).toEqual({
      out: "",
      err: `gatehouse: ${file}: ${fault}\n`,
      code: 2,
    })
  }),
)
