import { expect } from "@effect/vitest"
import { Deferred, Effect, Fiber, Queue } from "effect"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { runCli } from "../support/cli.ts"
import { layer } from "../support/it.ts"
import { closedPort, makeReceiver } from "../support/receiver.ts"
import { onPostgres, TestServer } from "../support/server.ts"

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

/** A tenant of the server, whose commands use a key of its project. */
const tenant = Effect.gen(function* () {
  const { url } = yield* TestServer
  const env = { GATEHOUSE_URL: url }
  const project = yield* runCli(["projects", "create", "docs"], { env })
  const key = yield* runCli(["keys", "create", "ci", "--project", project.out.trim()], { env })
  const variables = { ...env, GATEHOUSE_TOKEN: key.out.trim(), GATEHOUSE_WEBHOOK_SECRET: secret }
  return (args: ReadonlyArray<string>, more: Readonly<Record<string, string>> = {}, stdin = "") =>
    runCli(args, { env: { ...variables, ...more }, stdin })
})

layer(TestServer.layer(onPostgres({ WEBHOOK_RETRY_DELAYS: "1h" })), { excludeTestServices: true })(
  "webhooks and jobs",
  (it) => {
    it.effect("jobs are created, listed, shown and canceled, and schedules run, paused and deleted", function* () {
      const cli = yield* tenant
      const runAt = new Date(Date.now() + 3_600_000).toISOString()
      const options = ["--priority", "7", "--max-attempts", "5", "--run-at", runAt]
      const job = (yield* cli(["jobs", "create", "report", "--input", "[1]", ...options])).out.trim()
      expect((yield* cli(["jobs", "list", "--status", "queued", "--workflow", "report"])).out).toMatch(
        new RegExp(`^${job}  report +queued +0/5 +- +- +\\d`, "m"),
      )
      const shown = (yield* cli(["jobs", "get", job])).out
      for (const line of [/^priority +7$/m, /^input +\[1\]$/m, new RegExp(`^run at +${runAt}$`, "m")]) {
        expect(shown).toMatch(line)
      }
      expect(yield* cli(["jobs", "cancel", job])).toMatchObject({ code: 0, out: "" })
      expect((yield* cli(["jobs", "get", job])).out).toMatch(/^state +canceled$/m)
      expect((yield* cli(["jobs", "finish", job])).err).toContain("The job is canceled: stop the work.")

      const timing = ["0 4 * * *", "--timezone", "Europe/Berlin", "--overlap", "skip"]
      const schedule = (yield* cli(["schedules", "create", "nightly", ...timing])).out.trim()
      const first = (yield* cli(["schedules", "run", schedule])).out.trim()
      const again = yield* cli(["schedules", "run", schedule])
      expect([again.code, again.err]).toEqual([1, expect.stringContaining("overlap is skip")])
      const before = (yield* cli(["schedules", "get", schedule])).out
      expect(before).toMatch(/^state +active$/m)
      expect(before.match(/^next +\d/gm)).toHaveLength(5)
      expect(before).toMatch(new RegExp(`^last job +${first} queued$`, "m"))
      expect(yield* cli(["schedules", "update", schedule, "--no-active", "--cron", "30 5 * * *"])).toMatchObject({
        code: 0,
      })
      expect((yield* cli(["schedules", "list"])).out).toMatch(
        new RegExp(`^${schedule}  nightly +30 5 \\* \\* \\* +Europe/Berlin +paused$`, "m"),
      )
      expect((yield* cli(["schedules", "get", schedule])).out).toMatch(/^state +paused\n(?:.*\n)*next +-$/m)
      expect((yield* cli(["schedules", "update", schedule])).code).toBe(2)
      expect((yield* cli(["schedules", "update", schedule, "--cron", "never"])).err).toContain("--cron must have five")
      expect(yield* cli(["schedules", "delete", schedule])).toMatchObject({ code: 0 })
      expect((yield* cli(["schedules", "get", schedule])).code).toBe(1)
    })

    it.effect("a user gets from a new endpoint to a delivery that listen has verified", function* () {
      const cli = yield* tenant
      const port = yield* closedPort
      const listening = yield* Deferred.make<void>()
      const lines = yield* Queue.unbounded<string>()
      const onLine = (line: string) => {
        if (line === `receiving at http://127.0.0.1:${port}`) Deferred.doneUnsafe(listening, Effect.void)
        else Queue.offerUnsafe(lines, line)
      }
      const env = { GATEHOUSE_WEBHOOK_SECRET: secret }
      const listen = yield* Effect.forkChild(runCli(["listen", "--port", String(port)], { env, onLine }))
      yield* Deferred.await(listening)

      const endpoint = yield* cli(["webhooks", "create", `http://127.0.0.1:${port}`, "--description", "Mine"])
      expect(endpoint.code, endpoint.err).toBe(0)
      const id = endpoint.out.trim()
      expect((yield* cli(["webhooks", "list"])).out).toMatch(
        new RegExp(`^${id}  http://127.0.0.1:${port}  yes     - +- +Mine$`, "m"),
      )

      expect(yield* cli(["webhooks", "test", id])).toEqual({
        out: "Delivered: the endpoint answered job.completed with status 204.\n",
        err: "",
        code: 0,
      })
      expect(yield* Queue.take(lines)).toMatch(/^verified \w{26}: \{"event":"job.completed"/)

      const job = (yield* cli(["jobs", "create", "nightly-report", "--input", "[1]"])).out.trim()
      expect(yield* cli(["jobs", "finish", job, "--result", '{"rows":3.0}'])).toMatchObject({ code: 0 })
      expect(yield* Queue.take(lines)).toMatch(
        new RegExp(`^verified \\w{26}: .*"job_id":"${job}".*"result":\\{"rows":3\\.0\\}`),
      )
      const failed = (yield* cli(["jobs", "create", "nightly-report"])).out.trim()
      yield* cli(["jobs", "finish", failed, "--error", "out of memory"])
      expect(yield* Queue.take(lines)).toContain(`"event":"job.failed","job_id":"${failed}"`)
      const again = yield* cli(["jobs", "finish", failed])
      expect(again).toMatchObject({ out: "", code: 1 })

      const deliveries = yield* cli(["webhooks", "deliveries", id, "--job", job])
      expect(deliveries.out).toMatch(new RegExp(`^\\w{26}  \\w{26}  ${job}  job.completed  `, "m"))
      const [delivery] = /^\w{26}/m.exec(deliveries.out)!
      expect((yield* cli(["webhooks", "retry", delivery])).code).toBe(0)
      expect(yield* Queue.take(lines)).toContain(`verified ${delivery}: `)
      expect((yield* cli(["webhooks", "deliveries", "--state", "failed"])).out).toMatch(/^DELIVERY .*\n$/)
      yield* Fiber.interrupt(listen)
    })

    it.effect("listen refuses a webhook that was signed with another secret", function* () {
      const cli = yield* tenant
      const port = yield* closedPort
      const lines = yield* Queue.unbounded<string>()
      const listen = yield* Effect.forkChild(
        runCli(["listen", "--json", "--port", String(port)], { onLine: (line) => Queue.offerUnsafe(lines, line) }),
      )
      expect(yield* Queue.take(lines)).toBe(`receiving at http://127.0.0.1:${port}`)
      // Without a secret, the command generates one and creates the endpoint with it.
      const [, made] = /^with a new secret: export GATEHOUSE_WEBHOOK_SECRET=(whsec_\S{32})$/.exec(
        yield* Queue.take(lines),
      )!
      const other = (yield* cli(["webhooks", "create", `http://127.0.0.1:${port}`])).out.trim()
      const test = yield* cli(["webhooks", "test", other])
      expect(test).toMatchObject({ out: "", code: 1 })
      expect(test.err).toMatch(
        /^The endpoint answered with status 400: No signature matches.*\ngatehouse: The endpoint did not accept the test event. Its response is above\n$/,
      )
      expect(JSON.parse(yield* Queue.take(lines))).toEqual({
        verified: false,
        refused: expect.stringContaining("No signature"),
      })
      // The secret can also come on standard input.
      const mine = yield* cli(
        ["webhooks", "create", `http://127.0.0.1:${port}`],
        { GATEHOUSE_WEBHOOK_SECRET: "" },
        `${made}\n`,
      )
      yield* cli(["webhooks", "test", mine.out.trim()])
      expect(JSON.parse(yield* Queue.take(lines))).toMatchObject({
        verified: true,
        event: { event: "job.completed" },
      })
      yield* Fiber.interrupt(listen)
    })

    it.effect("an endpoint is changed and deleted", function* () {
      const cli = yield* tenant
      const receiver = yield* makeReceiver()
      const id = (yield* cli(["webhooks", "create", receiver.url])).out.trim()
      const to = `${receiver.url}/moved`
      const changed = yield* cli(["webhooks", "update", id, "--to", to, "--description", "Mine", "--no-active"])
      expect(changed).toEqual({ out: "", err: `The endpoint ${id} is changed.\n`, code: 0 })
      expect((yield* cli(["webhooks", "list"])).out).toMatch(
        new RegExp(`^${id}  ${to}  no      - +by_request  Mine$`, "m"),
      )
      const json = yield* cli(["webhooks", "update", id, "--active", "--json"])
      expect(JSON.parse(json.out)).toMatchObject({ success: true })
      expect((yield* cli(["webhooks", "list"])).out).toMatch(new RegExp(`^${id}  ${to}  yes     - +-       Mine$`, "m"))
      const deleted = yield* cli(["webhooks", "delete", id])
      expect(deleted).toMatchObject({ out: "", err: expect.stringContaining(`${id} is deleted`), code: 0 })
      const again = yield* cli(["webhooks", "delete", id, "--json"])
      expect(JSON.parse(again.out)).toMatchObject({ success: false, code: "not_found" })
      expect(again.code).toBe(1)
    })

    it.effect("a signing secret is generated by default, and a short one causes a warning", function* () {
      const cli = yield* tenant
      const receiver = yield* makeReceiver()
      const without = { GATEHOUSE_WEBHOOK_SECRET: "" }
      const made =
        /^This is the new signing secret. It is shown only once: export GATEHOUSE_WEBHOOK_SECRET=(whsec_\S{32})$/m
      const signedBy = Effect.fnUntraced(function* (id: string, secret: string) {
        yield* cli(["webhooks", "test", id])
        const { body, headers } = receiver.received.at(-1)!
        return yield* Effect.promise(() => verifyWebhook({ headers, body }, secret))
      })
      const created = yield* cli(["webhooks", "create", receiver.url, "--json"], without)
      const { webhook_endpoint_id: id } = JSON.parse(created.out) as { readonly webhook_endpoint_id: string }
      const [, first] = made.exec(created.err)!
      expect(yield* signedBy(id, first!)).toMatchObject({ event: { event: "job.completed" } })
      const [, second] = made.exec((yield* cli(["webhooks", "update", id, "--new-secret"], without)).err)!
      expect(second).not.toBe(first)
      yield* signedBy(id, second!)

      const warning = /^Warning: the signing secret has (\d+) bytes; Standard Webhooks recommends 24 to 64/m
      for (const [given, bytes] of [
        ["short", "5"],
        ["whsec_c2hvcnQ=", "5"],
        ["x".repeat(23), "23"],
      ] as const) {
        const short = yield* cli(["webhooks", "create", receiver.url], { GATEHOUSE_WEBHOOK_SECRET: given })
        expect(warning.exec(short.err)?.[1], given).toBe(bytes)
        expect(short.err).not.toContain(given)
      }
      expect((yield* cli(["webhooks", "create", receiver.url])).err).not.toMatch(warning)
    })

    // Seen failing: the other addresses became the signing secret of the first endpoint.
    it.effect("standard input of several lines, as in a loop over a file, is no secret", function* () {
      const cli = yield* tenant
      const without = { GATEHOUSE_WEBHOOK_SECRET: "" }
      const ended = yield* cli(["webhooks", "create", "http://127.0.0.1:9"], without, "http://b\nhttp://c\n")
      expect(ended).toEqual({
        out: "",
        err: "gatehouse: Standard input has several lines, and is read for a secret: pass < /dev/null for none, or set GATEHOUSE_WEBHOOK_SECRET\n",
        code: 2,
      })
    })

    it.effect("the answer of a receiver is shown without terminal control characters", function* () {
      const cli = yield* tenant
      const receiver = yield* makeReceiver()
      receiver.behave({ status: 500, body: "broken\u001b[31m" })
      const id = (yield* cli(["webhooks", "create", receiver.url, "--inactive"])).out.trim()
      expect((yield* cli(["webhooks", "test", id])).err).toContain("status 500: broken [31m")
      const json = yield* cli(["webhooks", "test", id, "--json"])
      expect(JSON.parse(json.out)).toMatchObject({ success: true, delivered: false, status: 500 })
      expect(json.code).toBe(1)
    })

    it.effect("an invalid invocation is a usage error", function* () {
      const cli = yield* tenant
      const wrong = Effect.fnUntraced(function* (args: ReadonlyArray<string>, sentence: string) {
        const ended = yield* cli(args, { GATEHOUSE_WEBHOOK_SECRET: "" })
        expect(ended, args.join(" ")).toMatchObject({ out: "", code: 2 })
        expect(ended.err).toContain(sentence)
      })
      // The url is checked before a secret is asked for.
      yield* wrong(["webhooks", "create", "notaurl"], "the url must be an absolute http or https URL")
      yield* wrong(["webhooks", "update", "x", "--to", "notaurl"], "the url must be an absolute")
      yield* wrong(["webhooks", "update", "x"], "Nothing to change: set --to, --description, --active")
      yield* wrong(["keys", "validate"], "The key to validate is missing. Pass it on standard input")
      yield* wrong(["jobs", "finish", "x", "--error", "e", "--result", "1"], "not both")
      yield* wrong(["jobs", "finish", "x", "--result", "{"], "--result")
      yield* wrong(["webhooks", "deliveries", "--state", "lost"], "lost")
      yield* wrong(
        ["webhooks", "deliveries", "--limit", "101"],
        "gatehouse: --limit must be a whole number from 1 to 100\n",
      )
      yield* wrong(["keys", "create", "ci"], "--project <id>, or --org <id>")
      // Seen failing with "must be WorkflowRate", the name of a schema.
      yield* wrong(["workflows", "set", "w", "--rate", "5"], "--rate must be a JSON object")
      yield* wrong(["projects", "create", ""], "the name must be at least 1 character")
      yield* wrong(["projects", "create"], "see gatehouse projects create --help")
      yield* wrong(["keys"], "SUBCOMMANDS")
      yield* wrong(["--url", "gatehouse.example", "projects", "list"], "is not an http or https URL")
    })
  },
)
