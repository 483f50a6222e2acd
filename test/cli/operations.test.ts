/* oxlint-disable no-control-regex -- colours are control characters */
import { expect } from "@effect/vitest"
import { Deferred, Effect, Fiber, Queue } from "effect"
import { Command } from "effect/cli"
import { root } from "#src/cli/flags.ts"
import { op } from "#src/cli/operation.ts"
import { relativeTime } from "#src/cli/output.ts"
import { services } from "#src/cli/services.ts"
import { runCli } from "../support/cli.ts"
import { it, layer } from "../support/it.ts"
import { closedPort, makeReceiver } from "../support/receiver.ts"
import { onPostgres, TestServer } from "../support/server.ts"

/** Promise (Nothing secret in logs) */

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

/** An org for one test, and its commands. */
const tenant = Effect.gen(function* () {
  const { url } = yield* TestServer
  const env = { GATEHOUSE_URL: url }
  const org = (yield* runCli(["orgs", "create", "Acme"], { env })).out.trim()
  const key = (yield* runCli(["keys", "create", "ci", "--org", org], { env })).out.trim()
  const variables = { ...env, GATEHOUSE_TOKEN: key, GATEHOUSE_WEBHOOK_SECRET: secret }
  const cli = (args: ReadonlyArray<string>, more: { terminal?: boolean; env?: Record<string, string> } = {}) =>
    runCli(args, { ...more, env: { ...variables, ...more.env } })
  return { cli, env, org }
})

layer(TestServer.layer(onPostgres({ WEBHOOK_RETRY_DELAYS: "1h" })), { excludeTestServices: true })(
  "operations",
  (it) => {
    it.effect("projects are shown, changed and linked, and deployments listed", function* () {
      const { cli, org } = yield* tenant
      const project = (yield* cli(["projects", "create", "docs", "--org", org])).out.trim()
      expect((yield* cli(["projects", "update", project, "--name", "handbook", "--default-branch", "main"])).code).toBe(
        0,
      )
      expect((yield* cli(["projects", "link", project, "octo-org/docs"])).out).toMatch(/github +octo-org\/docs/)
      expect((yield* cli(["projects", "get", project])).out).toMatch(/handbook +octo-org\/docs +main/)
      // Seen failing: a branch with this name cleared the branch.
      expect((yield* cli(["projects", "update", project, "--default-branch", "none"])).out).toMatch(/docs +none /)
      yield* cli(["projects", "update", project, "--clear", "defaultBranch"])
      yield* cli(["projects", "unlink", project])
      expect((yield* cli(["projects", "get", project])).out).toMatch(/handbook +- +- /)
      for (const args of [
        ["update", project],
        ["link", project, "octo-org"],
        // Seen failing: without a repository, the flags were dropped without a word.
        ["link", project, "--environment", "production"],
        ["link", project, "--provider", "gitlab"],
        // Seen failing: the first cleared what only link sets, the second set what it should clear.
        ["update", project, "--clear", "hostOwner"],
        ["update", project, "--clear", "subdomain", "--subdomain", "docs"],
      ]) {
        expect((yield* cli(["projects", ...args])).code, args.join(" ")).toBe(2)
      }
      expect((yield* cli(["deployments", "list", project])).out).toMatch(/^DEPLOYMENT +CURRENT +BRANCH/)
      // Four columns of a terminal, like the heading. Seen failing: they counted as two.
      const wide = (yield* cli(["projects", "create", "東京", "--org", org])).out.trim()
      expect((yield* cli(["projects", "get", wide])).out).toContain(`${wide}  東京  -  `)
    })

    it.effect(
      "the documentation of a project is stored, shown and removed, and what readers ask is listed and erased",
      function* () {
        const { cli, org } = yield* tenant
        const project = (yield* cli(["projects", "create", "docs", "--org", org])).out.trim()
        const url = `http://127.0.0.1:${yield* closedPort}/docs.zip`
        const docs = (...args: ReadonlyArray<string>) => cli(["projects", "docs", ...args])
        expect((yield* docs("set", project, url)).out).toMatch(/no +not kept +http:/)
        expect((yield* docs("set", project, url, "--public", "--keep-questions")).out).toMatch(/yes +kept +http:/)
        expect((yield* docs("get", project)).out).toContain(url)
        expect((yield* docs("questions", project)).out).toMatch(/^ASKED AT +FOUND +THUMB +QUESTION/)
        expect((yield* docs("questions", project, "--not-found")).code).toBe(0)
        expect((yield* docs("questions", project, "--most-asked")).out).toMatch(/^TIMES +NOT FOUND/)
        // Seen failing: these flags were dropped without a word.
        for (const flag of [["--thumb", "up"], ["--cursor", "x"], ["--all"]]) {
          expect((yield* docs("questions", project, "--most-asked", ...flag)).code, flag[0]).toBe(2)
        }
        expect((yield* docs("erase-questions", project)).out).toBe(`${project}\n`)
        expect((yield* docs("delete", project)).out).toBe(`${project}\n`)
        expect((yield* docs("get", project)).code).toBe(1)
      },
    )

    it.effect("jobs are listed, claimed, extended and shown; schedules are created, listed and deleted", function* () {
      const { cli } = yield* tenant
      const job = (yield* cli(["jobs", "create", "w", "--input", '{"a":1}'])).out.trim()
      expect((yield* cli(["jobs", "claim", "--workflow", "w", "--lease", "600"])).out).toMatch(
        new RegExp(`^${job}  w +1 +\\S+Z +\\{"a":1\\}$`, "m"),
      )
      expect((yield* cli(["jobs", "claim"])).err).toBe("No job is queued.\n")
      yield* cli(["jobs", "create", "w", "--concurrency-key", "k"])
      const queue = yield* cli(["jobs", "queue"])
      expect(queue.out).toMatch(
        /^WORKFLOW +QUEUED +DELAYED +RUNNING +COUNTED\nw +1 +0 +1 +all\n\nKEY .*\nk +w +1 +0\n$/,
      )
      expect(queue.err).toMatch(/^The oldest job is due since \S+Z\. Created in the last five minutes: 2\.\n$/)
      expect((yield* cli(["jobs", "heartbeat", job])).code).toBe(0)
      // Seen failing: the time was printed as DateTime.Utc(…).
      expect((yield* cli(["jobs", "log", job, "half", "--attempt", "1", "--level", "warn"])).code).toBe(0)
      expect((yield* cli(["jobs", "logs", job])).out).toMatch(/^\d{4}-\S+Z warn  half\n$/)
      // Seen failing: the line of a worker controlled the terminal, and made further lines.
      yield* cli(["jobs", "log", job, "a\u001b[2J\nb", "--attempt", "1"])
      expect((yield* cli(["jobs", "logs", job])).out).toMatch(/\n\d{4}-\S+Z info  a \[2J b\n$/)
      expect(yield* cli(["jobs", "log", job, "half"])).toMatchObject({
        code: 2,
        err: expect.stringContaining("Missing required flag: --attempt"),
      })
      // Seen failing: with a job, the flags of the filter were dropped without a word.
      expect((yield* cli(["jobs", "cancel", job, "--workflow", "w"])).err).toContain("must not be sent together")
      // Seen failing: without both, as with a variable that is not set, every job of the org was canceled.
      for (const [verb, own] of [
        ["cancel", "--status"],
        ["retry", "--error"],
      ] as const) {
        const err = `gatehouse: Name the job, or select with --workflow, ${own}, --since or --until\n`
        expect(yield* cli(["jobs", verb])).toEqual({ out: "", err, code: 2 })
      }
      expect((yield* cli(["jobs", "list", "--status", "running"])).out).toContain(job)
      yield* cli(["jobs", "finish", job, "--result", "3"])
      expect((yield* cli(["jobs", "get", job])).out).toMatch(
        /^state +completed\n(?:.*\n)*input +\{"a":1\}\nresult +3\n(?:.*\n)*attempt 1 +\d{4}-\S+Z · completed\n/m,
      )
      const schedule = (yield* cli(["schedules", "create", "w", "0 4 * * *", "--timezone", "Europe/Berlin"])).out.trim()
      expect((yield* cli(["schedules", "list"])).out).toMatch(
        new RegExp(`^${schedule}  w +0 4 \\* \\* \\* +Europe/Berlin`, "m"),
      )
      // Seen failing: it was offered, although no flag sets it.
      expect((yield* cli(["schedules", "update", schedule, "--clear", "callback_secret"])).code).toBe(2)
      expect((yield* cli(["schedules", "delete", schedule])).code).toBe(0)
      expect((yield* cli(["schedules", "list"])).out).not.toContain(schedule)
    })

    // Seen failing: of the administrator's alert, it printed an empty --org.
    it.effect("alerts create says how to test the alert", function* () {
      const { env, org } = yield* tenant
      const create = ["alerts", "create", "late", "--condition", "endpoint_deactivated", "--target", "slack"]
      for (const owner of [["--org", org], ["--all-orgs"]]) {
        const { err, out } = yield* runCli([...create, ...owner], {
          env: { ...env, GATEHOUSE_ALERT_URL: "https://hooks.example.com/a" },
        })
        expect(err).toBe(`The alert is created. Test it: gatehouse alerts test ${out.trim()} ${owner.join(" ")}\n`)
      }
    })

    it.effect("limits of workflows are set, shown, listed and deleted", function* () {
      const { cli } = yield* tenant
      const rate = ["--rate", '{"limit":10,"window_seconds":60}']
      expect((yield* cli(["workflows", "set", "mail", "--concurrency-per-key", "1", ...rate])).code).toBe(0)
      expect((yield* cli(["workflows", "list"])).out).toMatch(/^mail +- +1 +10 in 60 s$/m)
      expect((yield* cli(["workflows", "get", "mail"])).out).toMatch(/^at once per key +1$/m)
      expect((yield* cli(["workflows", "set", "mail"])).err).toContain("at least one of")
      expect((yield* cli(["workflows", "delete", "mail"])).code).toBe(0)
      expect((yield* cli(["workflows", "get", "mail"])).code).toBe(1)
    })

    it.effect("listen forwards webhooks and replays one; a delivery shows its attempts and is recovered", function* () {
      const { cli } = yield* tenant
      const receiver = yield* makeReceiver()
      receiver.behave({ status: 202 })
      const port = yield* closedPort
      const listening = yield* Deferred.make<void>()
      const lines = yield* Queue.unbounded<string>()
      const onLine = (line: string) => {
        if (line.startsWith("receiving at")) Deferred.doneUnsafe(listening, Effect.void)
        else Queue.offerUnsafe(lines, line)
      }
      const env = { GATEHOUSE_WEBHOOK_SECRET: secret }
      const forward = ["listen", "--forward-to", `${receiver.url}/hooks`]
      const listen = yield* Effect.forkChild(runCli([...forward, "--port", String(port)], { env, onLine }))
      yield* Deferred.await(listening)
      const endpoint = (yield* cli(["webhooks", "create", `http://127.0.0.1:${port}`])).out.trim()
      expect((yield* cli(["webhooks", "test", endpoint])).out).toContain("status 202")
      expect(receiver.received[0]).toMatchObject({ method: "POST", path: "/hooks" })
      expect(receiver.received[0]!.headers).toMatchObject({
        "webhook-id": expect.any(String),
        "webhook-signature": expect.stringMatching(/^v1,/),
        "x-event-type": "job.completed",
      })
      yield* Queue.take(lines)

      receiver.behave({ status: 500, body: "broken" })
      const job = (yield* cli(["jobs", "create", "w"])).out.trim()
      yield* cli(["jobs", "finish", job])
      yield* Queue.take(lines)
      yield* Fiber.interrupt(listen)
      const [delivery] = /^\w{26}/m.exec((yield* cli(["webhooks", "deliveries", "--job", job])).out)!
      expect((yield* cli(["webhooks", "show", endpoint])).out).toMatch(/^ACTIVE +FAILING SINCE/)

      receiver.behave({ status: 204 })
      const replayed = yield* cli([...forward, "--replay", delivery])
      expect(replayed).toMatchObject({ err: `${receiver.url}/hooks answered with status 204.\n`, code: 0 })
      expect(receiver.received.at(-1)!.headers["webhook-id"]).toBe(delivery)
      receiver.behave({ status: 400 })
      expect((yield* cli([...forward, "--replay", delivery])).code).toBe(1)
      // Seen failing: it followed the redirect, and reported the answer of another path.
      receiver.behave({ status: 307, headers: { location: "/elsewhere" } })
      expect(yield* cli([...forward, "--replay", delivery])).toMatchObject({
        err: expect.stringContaining("answered with status 307"),
        code: 1,
      })
      for (const args of [
        ["--replay", delivery],
        ["--forward-to", "here"],
        ["--port", "99999999"],
        ["--port", "-1"],
      ]) {
        expect((yield* cli(["listen", ...args])).code, args.join(" ")).toBe(2)
      }
      expect((yield* cli(["webhooks", "delivery", delivery])).out).toMatch(/^ATTEMPT +STARTED/)
      expect((yield* cli(["webhooks", "recover", endpoint, "--since", "2026-01-01T00:00:00Z"])).out).toMatch(/^\d+\n$/)
    })

    it.effect("api sends any request and prints the answer", function* () {
      const { cli, env } = yield* tenant
      const made = yield* cli(["api", "POST", "/v1/jobs/create", "--data", '{"workflow":"w"}'])
      expect(JSON.parse(made.out)).toMatchObject({ success: true })
      const read = yield* runCli(["api", "POST", "/api/v0/orgs", "--data", "-"], { env, stdin: '{"name":"Piped"}' })
      expect(JSON.parse(read.out)).toMatchObject({ name: "Piped" })
      const refused = yield* cli(["api", "GET", "/api/v0/nowhere"])
      expect(refused).toMatchObject({ out: expect.stringContaining('"not_found"'), code: 1 })
      expect(refused.err).toContain("GET /api/v0/nowhere failed with status 404")
      expect((yield* cli(["api", "GET", "nowhere"])).code).toBe(2)
    })

    it.effect("--all lists everything, page by page", function* () {
      const { cli } = yield* tenant
      yield* Effect.forEach(
        Array.from({ length: 103 }),
        () => cli(["api", "POST", "/v1/jobs/create", "-d", '{"workflow":"all"}']),
        {
          concurrency: 8,
          discard: true,
        },
      )
      const all = yield* cli(["jobs", "list", "--workflow", "all", "--all"])
      expect(all.err).toBe("")
      expect(all.out.trim().split("\n")).toHaveLength(104)
      expect(all.out.match(/^JOB /gm)).toHaveLength(1)
      const documents = (yield* cli(["jobs", "list", "--all", "--json"])).out.trim().split("\n")
      expect(documents.map((one) => (JSON.parse(one) as { jobs: Array<unknown> }).jobs.length)).toEqual([100, 3])
    })

    it.effect("a terminal gets colours and relative times, and NO_COLOR turns the colours off", function* () {
      const { cli } = yield* tenant
      yield* cli(["jobs", "create", "w"])
      expect((yield* cli(["jobs", "list"], { terminal: true })).out).toMatch(
        /\u001b\[33mqueued\u001b\[0m.* (now|\d+ \w+ ago)\n$/,
      )
      const plain = yield* cli(["jobs", "list"], { terminal: true, env: { NO_COLOR: "1" } })
      expect(plain.out).not.toContain("\u001b")
      expect((yield* cli(["jobs", "list"])).out).toMatch(/\d{4}-\d\d-\d\dT/)
    })

    it.effect("a command for one of several orgs asks for a choice, in a short message", function* () {
      const { env } = yield* tenant
      yield* Effect.forEach(["a", "b", "c", "d"], (name) => runCli(["orgs", "create", name], { env }))
      const { code, err } = yield* runCli(["keys", "list"], { env })
      expect([code, err.split(", ").length]).toEqual([2, 4])
      expect(err).toContain("and others: gatehouse orgs list")
      expect((yield* runCli(["orgs", "list"], { env })).out).toMatch(/^ORG +NAME +CREATED\n/)
    })
  },
)

// Seen failing: the field was dropped, and the request sent without it.
it.effect("a command that sets a field of no part of its request has a defect", function* () {
  const get = op("jobs.get", {
    args: { job: "job_id" },
    run: (send, fields) => send(Object.assign(fields, { jobId: "1" })),
  })
  const command = root.pipe(Command.withSubcommands([get]))
  const exit = yield* Command.runWith(command, { version: "" })(["get", "1"]).pipe(
    Effect.provide(services),
    Effect.exit,
  )
  expect(String(exit)).toContain("jobs.get has no field jobId")
})

it.effect("help shows the help of a command", function* () {
  const [help, flag] = [yield* runCli(["help", "keys", "create"]), yield* runCli(["keys", "create", "--help"])]
  expect(help).toEqual(flag)
  expect(help).toMatchObject({ out: expect.stringContaining("--expires-at"), code: 0 })
  expect((yield* runCli(["help"])).out).toContain("whoami")
  // Seen failing: the help of the group, and 0.
  for (const wrong of ["nonsense", "keys nonsense", "overview nonsense failing"]) {
    const err = `gatehouse: There is no command ${wrong}; see gatehouse help\n`
    expect(yield* runCli(["help", ...wrong.split(" ")])).toEqual({ err, out: "", code: 2 })
  }
})

it("a time is shown relative to now", () => {
  const now = Date.UTC(2026, 10, 20)
  expect([0, 400, 1_000, 59_000, 60_000, 3_600_000, 90_000_000].map((ago) => relativeTime(now - ago, now))).toEqual([
    "now",
    "now",
    "1 s ago",
    "59 s ago",
    "1 min ago",
    "1 h ago",
    "1 d ago",
  ])
  expect(relativeTime(now + 120_000, now)).toBe("in 2 min")
})
