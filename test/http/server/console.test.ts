import { expect } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { ConsoleFolder } from "#src/http/server/console.ts"
import { layer } from "../../support/it.ts"
import { TestServer } from "../../support/server.ts"

const folder = mkdtempSync(join(tmpdir(), "gatehouse-console-"))
const build = () => {
  mkdirSync(join(folder, "assets"), { recursive: true })
  writeFileSync(join(folder, "index.html"), "<!doctype html><title>Gatehouse</title>")
  writeFileSync(join(folder, "assets", "index-abc123.js"), `console.log("${"x".repeat(5_000)}")`)
  writeFileSync(join(folder, "assets", "font-abc123.woff2"), Buffer.from([0xff, 0x00, 0x80, 0xc3]))
  writeFileSync(join(folder, "assets", "secret.key"), "no file of a page")
}
const removed = Layer.effectDiscard(
  Effect.acquireRelease(Effect.void, () => Effect.sync(() => rmSync(folder, { recursive: true, force: true }))),
)

layer(TestServer.layer().pipe(Layer.provide(Layer.succeed(ConsoleFolder, folder)), Layer.merge(removed)), {
  excludeTestServices: true,
})("the console", (it) => {
  it.effect("says that it is not built, and works after a build without a restart", function* () {
    const { send } = yield* TestServer
    const missing = yield* send("GET", "/console")
    expect(missing.status).toBe(404)
    expect(missing.json).toEqual({ error: expect.stringContaining("npm run build"), code: "not_found" })
    build()
    const page = yield* send("GET", "/console")
    expect([page.status, page.headers["content-type"]]).toEqual([200, "text/html; charset=utf-8"])
    expect(page.text).toContain("<title>Gatehouse</title>")
  })

  it.effect("has a strict policy: only its own files, no inline script or style, no frames", function* () {
    const { send } = yield* TestServer
    build()
    for (const path of ["/console", "/console/orgs/01KAHBMKZ3D2X7S5QN8W4V6R9T", "/console/portal"]) {
      const { headers, status } = yield* send("GET", path)
      const policy = String(headers["content-security-policy"])
      expect(status, path).toBe(200)
      expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'")
      for (const rule of ["frame-ancestors 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"]) {
        expect(policy).toContain(rule)
      }
      expect(policy).not.toMatch(/unsafe|\*|https?:|data:/)
      expect([headers["referrer-policy"], headers["x-content-type-options"]]).toEqual(["no-referrer", "nosniff"])
      expect(headers["cache-control"]).toBe("no-cache")
    }
  })

  it.effect("files with a hash in their names are cached for ever, and are compressed", function* () {
    const { send } = yield* TestServer
    build()
    const path = "/console/assets/index-abc123.js"
    const script = yield* send("GET", path, { headers: { "accept-encoding": "br" } })
    expect(script.headers).toMatchObject({
      "content-type": "text/javascript; charset=utf-8",
      "cache-control": "public, max-age=31536000, immutable",
      "content-encoding": "br",
    })
    const etag = String(script.headers["etag"])
    const kept = yield* send("GET", path, { headers: { "accept-encoding": "br", "if-none-match": etag } })
    expect([kept.status, kept.text]).toEqual([304, ""])
    const font = yield* send("GET", "/console/assets/font-abc123.woff2")
    expect([font.headers["content-type"], font.headers["content-length"]]).toEqual(["font/woff2", "4"])
  })

  it.effect("serves no files but those of the build", function* () {
    const { send } = yield* TestServer
    build()
    const paths = ["assets/none.js", "assets/secret.key", "../package.json", "%2e%2e/package.json", "assets/../../x.js"]
    for (const path of paths) {
      const { json, status } = yield* send("GET", `/console/${path}`)
      expect([status, (json as Record<string, string>)["code"]], path).toEqual([404, "not_found"])
    }
    const posted = yield* send("POST", "/console/orgs")
    expect([posted.status, posted.headers["allow"]]).toEqual([405, "GET, HEAD"])
  })
})
