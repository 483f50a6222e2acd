import { describe, expect } from "@effect/vitest"
import { Context, Deferred, Duration, Effect, Fiber, Layer } from "effect"
import { TestClock } from "effect/testing"
import { Documents as DocumentsPort } from "#src/domain/docs/Documents.ts"
import * as Documents from "#src/infrastructure/docs/FetchedDocuments.ts"
import { ZipReader } from "#src/infrastructure/docs/ZipReader.ts"
import { SafeHttp } from "#src/infrastructure/net/SafeHttp.ts"
import { it } from "../../support/it.ts"
import { closedPort, makeReceiver, type Received } from "../../support/receiver.ts"
import { zip } from "../../support/zip.ts"

/**
 * Promise (Orgs take turns): A hundred zips of one org that never arrive do not delay the documents of another org.
 * Their deadline includes the time in the queue.
 */

const MiB = 1024 * 1024
const docs = (content = "# A") => zip([{ path: "a.md", content }])
const skillText = "---\nname: deploy\ndescription: >\n  How to\n  deploy\n---\n\n# Deploy\n"

/** Documents, and a server for them; private addresses may be called by default. */
const world = Effect.fnUntraced(function* (
  options: {
    readonly allowPrivateNetworks?: boolean
    readonly timeout?: Duration.Input
    readonly zips?: Layer.Layer<ZipReader>
  } = {},
) {
  const { allowPrivateNetworks = true, timeout = "30 seconds", zips = ZipReader.layer } = options
  const server = yield* makeReceiver()
  server.behave({ status: 200, body: docs() })
  const http = SafeHttp.layer({ allowPrivateNetworks, resolve: async () => ["127.0.0.1"] })
  const context = yield* Layer.build(Documents.layer({ timeout }).pipe(Layer.provide([http, zips])))
  const documents = Context.get(context, DocumentsPort)
  const url = `${server.url}/docs.zip`
  const archive = (url: string, orgId?: string) => documents.archive({ url, orgId })
  const skill = (url: string, orgId?: string) => documents.skill({ url, orgId })
  const refusal = (at = url) => Effect.map(Effect.flip(archive(at)), ({ error }) => error)
  const text = Effect.map(archive(url), ({ pages }) => pages[0]!.markdown)
  return { server, url, archive, skill, refusal, text }
})

describe("a zip", () => {
  it.effect("is fetched without tracing headers, and returns its pages and a version of its bytes", function* () {
    const { server, url, archive } = yield* world()
    const { pages, version } = yield* archive(url)
    expect(pages).toEqual([{ slug: "a", markdown: "# A" }])
    expect(version).toMatch(/^[0-9a-f]{64}$/)
    const [{ method, path, headers, body }] = server.received as [Received]
    expect([method, path, body.length]).toEqual(["GET", "/docs.zip", 0])
    expect(Object.keys(headers).sort()).toEqual(["accept", "accept-encoding", "connection", "host", "user-agent"])
    expect(headers["accept-encoding"]).toBe("identity")
  })

  it.effect(
    "is fetched again only after a minute, with its ETag and date, and kept when nothing changed",
    function* () {
      const { server, text } = yield* world()
      const validators = { etag: '"v1"', "last-modified": "Fri, 20 Nov 2026 17:00:00 GMT" }
      server.behave({ status: 200, body: docs("one"), headers: validators })
      expect(yield* text).toBe("one")
      yield* TestClock.adjust("59 seconds")
      expect(yield* text).toBe("one")
      expect(server.received.length).toBe(1)

      server.behave({ status: 304 })
      yield* TestClock.adjust("1 second")
      expect(yield* text).toBe("one")
      expect(server.received.length).toBe(2)
      expect(server.received[1]!.headers).toMatchObject({
        "if-none-match": '"v1"',
        "if-modified-since": "Fri, 20 Nov 2026 17:00:00 GMT",
      })
      yield* TestClock.adjust("59 seconds")
      yield* text
      expect(server.received.length).toBe(2)

      server.behave({ status: 200, body: docs("two") })
      yield* TestClock.adjust("1 minute")
      expect(yield* text).toBe("two")
      server.behave({ status: 200, body: docs("three") })
      yield* TestClock.adjust("1 minute")
      expect(yield* text).toBe("three")
      expect(server.received.at(-1)!.headers["if-none-match"]).toBeUndefined()
    },
  )

  it.effect(
    "is used for an hour while its server is unavailable, but not after the server reports that it is gone",
    function* () {
      const { server, text, refusal } = yield* world()
      expect(yield* text).toBe("# A")
      for (const behaviour of [{ status: 500 }, "reset", { status: 429 }] as const) {
        server.behave(behaviour)
        yield* TestClock.adjust("19 minutes")
        expect(yield* text).toBe("# A")
      }
      yield* TestClock.adjust("4 minutes")
      expect(yield* refusal()).toMatch(/was answered with the status 429\.$/)
      server.behave({ status: 200, body: docs("back") })
      expect(yield* text).toBe("back")
      server.behave({ status: 404 })
      yield* TestClock.adjust("2 minutes")
      expect(yield* refusal()).toMatch(/was answered with the status 404\.$/)
    },
  )

  it.effect("is fetched once for concurrent requests, even when the first one ends", function* () {
    const { server, text } = yield* world()
    server.behave("hang")
    const first = yield* Effect.forkChild(text)
    yield* server.arrived(1)
    const others = yield* Effect.forkChild(Effect.all([text, text, text], { concurrency: 3 }))
    yield* Effect.yieldNow
    yield* Fiber.interrupt(first)
    expect(server.received.length).toBe(1)
    yield* Fiber.interrupt(others)
  })

  // Seen failing with the url alone as the key: the second org got what the first one's signed url opened.
  it.effect("is shared between orgs only if its url has neither a query nor a user", function* () {
    const { server, url, archive, skill } = yield* world()
    for (const orgId of ["a", "b", undefined]) yield* archive(url, orgId)
    expect(server.received.length).toBe(1)
    for (const signed of [`${url}?X-Amz-Signature=1`, `${url}?a`, url.replace("//", "//user:password@")]) {
      const before = server.received.length
      for (const orgId of ["a", "b", undefined, "a", "b", undefined]) yield* Effect.exit(archive(signed, orgId))
      // A url with a user is refused each time, and so is never cached.
      expect(server.received.length - before, signed).toBe(signed.includes("@") ? 0 : 3)
    }
    server.behave({ status: 200, body: skillText })
    const before = server.received.length
    for (const orgId of ["a", "b", "a"]) yield* skill(`${server.url}/s.md?token=1`, orgId)
    expect(server.received.length - before).toBe(2)
  })

  it.effect("is fetched once for a hundred requests at the same time", function* () {
    const { server, text } = yield* world()
    const texts = yield* Effect.all(
      Array.from({ length: 100 }, () => text),
      { concurrency: "unbounded" },
    )
    expect(new Set(texts)).toEqual(new Set(["# A"]))
    expect(server.received.length).toBe(1)
  })

  it.effect("is fetched again at once after a failure", function* () {
    const { server, text, refusal } = yield* world()
    server.behave({ status: 503 })
    yield* refusal()
    server.behave({ status: 200, body: docs() })
    expect(yield* text).toBe("# A")
  })

  it.effect("may have 20 MiB, and not one byte more", function* () {
    const { server, url, archive, refusal } = yield* world()
    const size = 20 * MiB
    const empty = zip([
      { path: "a.md", content: "# A" },
      { path: "b.bin", stored: true },
    ]).length
    const full = zip([
      { path: "a.md", content: "# A" },
      { path: "b.bin", content: new Uint8Array(size - empty), stored: true },
    ])
    expect(full.length).toBe(size)
    server.behave({ status: 200, body: full })
    expect((yield* archive(url)).pages.length).toBe(1)
    server.behave({ status: 200, body: Buffer.concat([full, Buffer.from("x")]) })
    expect(yield* refusal(`${url}?2`)).toMatch(/ is larger than 20 MiB\.$/)
    server.behave("endless-body")
    expect(yield* refusal(`${url}?3`)).toMatch(/ is larger than 20 MiB\.$/)
  })
})

describe("redirects", () => {
  const redirecting =
    (to: (request: Received) => string | undefined, status = 302) =>
    (request: Received) => {
      const location = to(request)
      return location === undefined ? { status: 200, body: docs() } : { status, headers: { location } }
    }

  it.effect("are followed five times, with relative locations too", function* () {
    const { server, archive, refusal } = yield* world()
    const hops =
      (n: number) =>
      ({ path }: Received) => {
        const at = Number.parseInt(path.slice(1), 10)
        return at === n ? undefined : `${at + 1}`
      }
    for (const status of [301, 302, 303, 307, 308]) {
      server.behave(redirecting(hops(5), status))
      expect((yield* archive(`${server.url}/0?${status}`)).pages.length).toBe(1)
    }
    server.behave(redirecting(hops(7)))
    expect(yield* refusal(`${server.url}/1`)).toMatch(/ redirects more than five times; use the final URL\.$/)
    server.behave(redirecting(() => "/loop"))
    expect(yield* refusal(`${server.url}/loop`)).toMatch(/ redirects more than five times; use the final URL\.$/)
  })

  it.effect("are not followed to other schemes, without a location, or with a password", function* () {
    const { server, refusal } = yield* world()
    for (const location of [
      "file:///etc/passwd",
      "ftp://example.com/a.zip",
      "gopher://x",
      "data:,x",
      "javascript:1",
      "http://[",
      "http://u:p@example.com/",
    ]) {
      server.behave({ status: 302, headers: { location } })
      expect(yield* refusal(`${server.url}/${encodeURIComponent(location)}`), location).toMatch(
        /redirects to an address|cannot be fetched/,
      )
    }
    server.behave({ status: 302 })
    expect(yield* refusal(`${server.url}/none`)).toMatch(
      / redirects to an address that is no URL, or from https to http; use the final URL\.$/,
    )
    expect(server.received.length).toBe(8)
  })
})

/** Urls that lead to loopback and to other refused addresses; PORT is the server's. */
const hostile = [
  "http://127.0.0.1:PORT",
  "http://localhost:PORT",
  "http://example.com:PORT",
  "http://127.1:PORT",
  "http://2130706433:PORT",
  "http://0x7f000001:PORT",
  "http://0177.0.0.1:PORT",
  "http://0.0.0.0:PORT",
  "http://[::1]:PORT",
  "http://[::]:PORT",
  "http://[::ffff:127.0.0.1]:PORT",
  "http://[64:ff9b::7f00:1]:PORT",
  "http://[2002:7f00:1::]:PORT",
  "http://10.0.0.1",
  "http://172.16.0.1",
  "http://192.168.1.1",
  "http://100.64.0.1",
  "http://169.254.169.254/latest/meta-data",
  "http://[fd00:ec2::254]/latest",
  "http://100.100.100.200",
  "http://[fe80::1]",
  "http://[fc00::1]",
  "http://224.0.0.1",
  "http://255.255.255.255",
  "http://192.0.2.1",
  "http://198.18.0.1",
]

describe("hostile addresses", () => {
  it.effect("are not called, in any notation", function* () {
    const { server, refusal } = yield* world({ allowPrivateNetworks: false })
    for (const host of hostile) {
      const url = `${host.replace("PORT", String(server.port))}/docs.zip`
      expect(yield* refusal(url), url).toMatch(/^docsZipUrl: http\S+ cannot be fetched: .*\baddress\b.*\.$/)
    }
    expect(server.connections().accepted).toBe(0)
  })

  it.effect("are not called after a redirect either", function* () {
    // With private networks allowed, the first address may be called, but not these.
    const { server, refusal } = yield* world()
    for (const location of [
      "http://169.254.169.254/latest",
      "http://[::ffff:127.0.0.1]/",
      "http://0.0.0.0/",
      "http://[fe80::1]/",
    ]) {
      server.behave({ status: 302, headers: { location } })
      expect(yield* refusal(`${server.url}/${encodeURIComponent(location)}`), location).toMatch(
        /cannot be fetched: .*\baddress\b/,
      )
    }
  })
})

describe("fetches", () => {
  // Seen failing when a hundred hanging zips delayed another caller for thirty seconds.
  it.effect("of one owner do not delay those of another", function* () {
    const { server, archive } = yield* world({ timeout: "10 seconds" })
    server.behave((request: Received) => (request.path.startsWith("/hang") ? "hang" : { status: 200, body: docs() }))
    const hanging = yield* Effect.forEach(
      Array.from({ length: 100 }, (_, n) => n),
      (n) => Effect.exit(archive(`${server.url}/hang-${n}.zip`, "a")),
      { concurrency: "unbounded" },
    ).pipe(Effect.forkChild)
    yield* server.arrived(4)
    // The clock does not advance, so a request that waited would never end.
    expect((yield* archive(`${server.url}/docs.zip`, "b")).pages.length).toBe(1)
    expect(server.received.length).toBe(5)
    // The deadline of a hanging request includes its time in the queue.
    yield* TestClock.adjust("10 seconds")
    const exits = yield* Fiber.join(hanging)
    expect(exits.filter((exit) => exit._tag === "Success")).toEqual([])
  })
})

describe("a zip that is not unpacked in time", () => {
  it.effect("is a 503, because its server is not the reason", function* () {
    const begun = yield* Deferred.make<void>()
    const read = () => Effect.andThen(Deferred.succeed(begun, undefined), Effect.never)
    const { url, archive } = yield* world({ timeout: "10 seconds", zips: Layer.succeed(ZipReader, { read }) })
    const loading = yield* Effect.forkChild(Effect.flip(archive(url)))
    yield* Deferred.await(begun)
    yield* TestClock.adjust("10 seconds")
    expect(yield* Fiber.join(loading)).toMatchObject({ _tag: "Unavailable" })
  })
})

describe("servers that misbehave", () => {
  it.effect("cause a 422 that names the url", function* () {
    const { server, refusal } = yield* world({ timeout: 200 })
    const behaviours = [
      "hang",
      "close",
      "reset",
      "reset-in-headers",
      "reset-in-body",
      "close-in-body",
      "close-in-chunk",
      "drip",
      "drip-headers",
      "endless-headers",
      "endless-informational",
      "bomb",
      "garbage",
      "upgrade",
      { status: 204 },
      { status: 206, body: docs() },
      { status: 304 },
      { status: 401 },
      { status: 403 },
      { status: 404 },
      { status: 500 },
      { status: 200, body: "<html>Please sign in</html>" },
      { status: 200, body: "" },
    ] as const
    for (const [n, behaviour] of behaviours.entries()) {
      server.behave(behaviour)
      const url = `${server.url}/${n}.zip`
      const error = yield* refusal(url)
      expect(error, JSON.stringify(behaviour)).toMatch(
        /^docsZipUrl: \S+ (is not a zip|was answered|cannot be fetched|was sent compressed)[^\n]*\.$/,
      )
      expect(error).toContain(url)
    }
    const patient = yield* world()
    expect(yield* patient.refusal(`http://127.0.0.1:${yield* closedPort}/a.zip`)).toContain("was refused")
  })
})

describe("a skill", () => {
  it.effect("may have a colon in its description", function* () {
    const { server, skill } = yield* world()
    const descriptions = ["Deploys: to the cloud", "'Quoted: so'", '"Quoted: so"', "Use when: a, b: c # d", "a:b"]
    for (const [n, description] of descriptions.entries()) {
      server.behave({ status: 200, body: `---\nname: deploy\ndescription: ${description}\nversion: 1\n---\nText` })
      expect((yield* skill(`${server.url}/${n}.md`)).description, description).toContain(description.slice(1, 5))
    }
  })

  it.effect("has a name and a description in its front matter, and is fetched like a zip", function* () {
    const { server, skill } = yield* world()
    server.behave({ status: 200, body: skillText, headers: { etag: '"1"' } })
    const url = `${server.url}/deploy.md`
    expect(yield* skill(url)).toEqual({ name: "deploy", description: "How to deploy", markdown: skillText })
    yield* TestClock.adjust("2 minutes")
    server.behave({ status: 304 })
    expect((yield* skill(url)).name).toBe("deploy")
    expect(server.received[1]!.headers["if-none-match"]).toBe('"1"')
    server.behave({ status: 200, body: Buffer.from(`\uFEFF${skillText}`, "utf16le") })
    expect((yield* skill(`${server.url}/of-windows.md`)).markdown).toBe(skillText)
  })

  it.effect("is refused with its url without them, or above 1 MiB", function* () {
    const { server, skill } = yield* world()
    const refused = [
      "",
      "# Deploy",
      "---\nname: a\n---\n",
      "---\ndescription: a\n---\n",
      "---\nname: 1\ndescription: a\n---\n",
    ]
    const strange = [
      "---\n- a\n---\n",
      "---\nname: [a\n---\n",
      "---\n&a [*a, *a]\n---\n",
      "---\nname: ''\ndescription: a\n---\n",
    ]
    for (const [n, body] of [...refused, ...strange].entries()) {
      server.behave({ status: 200, body })
      const { error } = yield* Effect.flip(skill(`${server.url}/${n}.md`))
      expect(error, body).toMatch(/^skillUrls: \S+\.md must begin with front matter that has name and description\.$/)
    }
    server.behave({ status: 200, body: skillText + "x".repeat(MiB) })
    expect((yield* Effect.flip(skill(`${server.url}/large.md`))).error).toMatch(/ is larger than 1 MiB\.$/)
  })
})
