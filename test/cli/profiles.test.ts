import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { runCli } from "../support/cli.ts"
import { layer } from "../support/it.ts"
import { closedPort } from "../support/receiver.ts"
import { adminToken, guarded, TestServer } from "../support/server.ts"

/** A home folder for one test, and commands in it. */
const atHome = Effect.gen(function* () {
  const home = yield* Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(tmpdir(), "gatehouse-home-"))),
    (folder) => Effect.sync(() => rmSync(folder, { recursive: true })),
  )
  const file = join(home, ".config/gatehouse/profiles.json")
  const cli = (args: ReadonlyArray<string>, { env = {}, stdin = "" } = {}) =>
    runCli(args, { env: { HOME: home, ...env }, stdin })
  return { cli, file, home }
})

layer(TestServer.layer(guarded), { excludeTestServices: true })("profiles", (it) => {
  it.effect("login stores a server and its credential for the user only, and the commands use them", function* () {
    const { url } = yield* TestServer
    const { cli, file } = yield* atHome
    const login = yield* cli(["login", "--url", url], { stdin: adminToken })
    expect(login).toEqual({
      out: "",
      err: `Logged in to ${url}: the administrator. The profile default is stored in ${file}.\n`,
      code: 0,
    })
    expect([statSync(file).mode & 0o777, statSync(join(file, "..")).mode & 0o777]).toEqual([0o600, 0o700])
    expect(yield* cli(["whoami"])).toEqual({
      out: `the administrator at ${url}\n`,
      err: "The credential is that of the profile default.\n",
      code: 0,
    })
    const org = (yield* cli(["orgs", "create", "Acme"])).out.trim()
    const key = (yield* cli(["keys", "create", "me", "--org", org])).out.trim()

    // A second profile, which becomes the current one.
    expect((yield* cli(["login", "--url", url, "--profile", "acme"], { stdin: key })).err).toContain(
      `a key of the org ${org}`,
    )
    expect((yield* cli(["whoami"])).out).toBe(`a key of the org ${org} at ${url}\n`)
    expect(JSON.parse((yield* cli(["whoami", "--json", "--profile", "default"])).out)).toEqual({
      url,
      kind: "administrator",
    })
    expect((yield* cli(["whoami"], { env: { GATEHOUSE_PROFILE: "default" } })).out).toContain("the administrator")
    expect((yield* cli(["jobs", "create", "w"])).code).toBe(0)

    expect(yield* cli(["logout"])).toMatchObject({
      err: expect.stringContaining("The profile acme is removed"),
      code: 0,
    })
    expect(readFileSync(file, "utf8")).not.toContain(key)
    expect((yield* cli(["whoami"])).out).toContain("the administrator")
    yield* cli(["logout"])
    expect(yield* cli(["logout"])).toMatchObject({ err: 'gatehouse: There is no profile "default"\n', code: 1 })
  })

  it.effect("a credential is sent to its own server only, and variables have priority", function* () {
    const { url } = yield* TestServer
    const { cli } = yield* atHome
    yield* cli(["login", "--url", url], { stdin: adminToken })
    const other = url.replace("127.0.0.1", "localhost")
    expect((yield* cli(["orgs", "list", "--url", other])).err).toContain("Set GATEHOUSE_TOKEN")
    expect((yield* cli(["orgs", "list", "--url", `${url}/`])).code).toBe(0)
    const wrong = yield* cli(["orgs", "list"], { env: { GATEHOUSE_TOKEN: "a-wrong-token" } })
    expect(wrong).toMatchObject({
      err: expect.stringContaining("The credential is the value of GATEHOUSE_TOKEN."),
      code: 1,
    })
  })

  it.effect("login stores nothing that the server refuses, and tells the reason", function* () {
    const { url } = yield* TestServer
    const { cli, file } = yield* atHome
    const nowhere = `http://127.0.0.1:${yield* closedPort}`
    for (const [args, stdin, sentence, code] of [
      [["--url", url], "a-wrong-token", "The credential is not valid.", 1],
      [["--url", url], "svc_wrong", "is not valid.", 1],
      [["--url", url], "", "needs a credential", 1],
      [["--url", nowhere], adminToken, "does not answer", 1],
      [["--url", "gatehouse"], adminToken, "is not an http or https URL", 2],
      [[], adminToken, "The address of the service is missing", 2],
    ] as const) {
      const ended = yield* cli(["login", ...args], { stdin })
      expect(ended).toMatchObject({ out: "", err: expect.stringContaining(sentence), code })
    }
    expect(() => statSync(file)).toThrow("ENOENT")
    expect((yield* cli(["whoami", "--profile", "none"])).err).toContain('There is no profile "none"')
    mkdirSync(join(file, ".."), { recursive: true })
    writeFileSync(file, "{")
    expect(yield* cli(["whoami"])).toMatchObject({
      err: expect.stringContaining("cannot be read. Delete it"),
      code: 1,
    })
  })
})
