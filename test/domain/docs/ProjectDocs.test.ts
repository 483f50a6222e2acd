import { describe, expect, it } from "@effect/vitest"
import { DateTime, Duration, Schema } from "effect"
import {
  type DocsRecord,
  fetchRetryDelays,
  isDue,
  PutProjectDocs,
  targetOf,
  toProjectDocs,
  zipUrlOf,
} from "#src/domain/docs/ProjectDocs.ts"

/**
 * Promise (Documentation): Documentation of a project is fetched once for each setting and current deployment, by one
 * replica; readers see the old or the new pages, never both; a failed fetch is repeated six times.
 */

const start = DateTime.makeUnsafe("2026-11-20T17:00:00.000Z")
const later = (duration: Duration.Input) => DateTime.addDuration(start, Duration.fromInputUnsafe(duration))
const deployment = { id: "d1", sha: "a/b c" }
const record = (changes: Partial<DocsRecord> = {}): DocsRecord => ({
  orgId: "org",
  projectId: "project",
  projectName: "docs",
  docsZipUrl: "https://docs.example.com/docs.zip",
  docsUrl: null,
  isPublic: false,
  keepQuestions: false,
  revision: 1,
  updatedAt: start,
  deployment,
  stored: null,
  failure: null,
  leasedUntil: null,
  uncleanSince: null,
  ...changes,
})
const stored = (target: string) => {
  const sizes = { pages: 1, bytes: 1, characters: 1 }
  return { edition: "e", digest: "d", target, deploymentId: "d1", at: start, ...sizes }
}
const failed = (attempts: number, target = "1:d1") => ({ target, error: "It is missing.", attempts, at: start })

describe("the URL of the documentation", () => {
  const isValid = (docsZipUrl: unknown) => Schema.is(PutProjectDocs)({ docsZipUrl })

  it("has the placeholders of a deployment, and no others", () => {
    for (const url of ["https://a.example/docs.zip", "https://a.example/{sha}/docs-{deployment}.zip?v={sha}"])
      expect(isValid(url)).toBe(true)
    for (const url of [
      "https://a.example/{branch}.zip",
      "https://a.example/{}",
      "ftp://a.example/",
      "https://u:p@a.example/",
      "x",
      5,
    ])
      expect(isValid(url), String(url)).toBe(false)
  })

  it("is filled with the current deployment, escaped, and waits for one only if it names it", () => {
    const withPlaceholders = { docsZipUrl: "https://a.example/{deployment}/{sha}.zip" }
    expect(zipUrlOf(record(withPlaceholders))).toBe("https://a.example/d1/a%2Fb%20c.zip")
    expect(zipUrlOf(record({ ...withPlaceholders, deployment: null }))).toBeUndefined()
    expect(zipUrlOf(record({ deployment: null }))).toBe("https://docs.example.com/docs.zip")
  })
})

describe("documentation is due", () => {
  it("once for each setting and each current deployment", () => {
    expect(isDue(record(), start)).toBe(true)
    expect(isDue(record({ stored: stored("1:d1") }), start)).toBe(false)
    expect(isDue(record({ stored: stored("1:d1"), revision: 2 }), start)).toBe(true)
    expect(isDue(record({ stored: stored("1:") }), start)).toBe(true)
    expect(isDue(record({ stored: stored("1:"), deployment: null }), start)).toBe(false)
    const named = { docsZipUrl: "https://a.example/{sha}.zip", deployment: null }
    expect(isDue(record(named), start)).toBe(false)
  })

  it("again after each failure, until the delays end; a new deployment begins anew", () => {
    for (const [n, delay] of fetchRetryDelays.entries()) {
      const failure = failed(n + 1)
      expect(isDue(record({ failure }), DateTime.subtract(later(delay), { milliseconds: 1 })), delay).toBe(false)
      expect(isDue(record({ failure }), later(delay)), delay).toBe(true)
    }
    const last = failed(fetchRetryDelays.length + 1)
    expect(isDue(record({ failure: last }), later("30 days"))).toBe(false)
    expect(isDue(record({ failure: last, deployment: { id: "d2", sha: "" } }), start)).toBe(true)
  })

  it("not while a worker has it, and for cleaning a minute after pages were replaced", () => {
    expect(isDue(record({ leasedUntil: later("1 second") }), start)).toBe(false)
    expect(isDue(record({ leasedUntil: start }), start)).toBe(true)
    const replaced = record({ stored: stored("1:d1"), uncleanSince: start })
    expect(isDue(replaced, later("59 seconds"))).toBe(false)
    expect(isDue(replaced, later("1 minute"))).toBe(true)
    expect(isDue(record({ docsZipUrl: null, stored: null }), start)).toBe(true)
  })
})

describe("the owner reads", () => {
  const read = (changes: Partial<DocsRecord> = {}) =>
    toProjectDocs({ ...record(changes), docsZipUrl: "https://docs.example.com/docs.zip" })

  it("whether it is stored, waits or has failed, and when it is tried again", () => {
    expect(read()).toMatchObject({ state: "waiting", stored: null, failure: null })
    expect(read({ stored: stored("1:d1") })).toMatchObject({ state: "stored", stored: { deploymentId: "d1" } })
    expect(read({ failure: failed(1) })).toMatchObject({ state: "waiting", failure: { nextAt: later("10 seconds") } })
    expect(read({ failure: failed(7), stored: stored("1:d0") })).toMatchObject({
      state: "failed",
      failure: { error: "It is missing.", attempts: 7, nextAt: null },
      stored: { pages: 1 },
    })
    expect(read({ failure: failed(7, "1:d0") })).toMatchObject({ state: "waiting", failure: null })
    expect(targetOf(record())).toBe("1:d1")
  })
})
