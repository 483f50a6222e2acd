import { describe, expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { fetchDocument } from "#src/infrastructure/docs/FetchedDocuments.ts"
import { type SafeResponse, SafeHttp } from "#src/infrastructure/net/SafeHttp.ts"
import { it } from "../../support/it.ts"

type Headers = Readonly<Record<string, string>>

/** Fetches with a client that answers by url from `answers`; returns the result and the urls that were called. */
const fetched = (url: string, answers: Readonly<Record<string, readonly [status: number, headers: Headers]>>) => {
  const called: Array<string> = []
  const http = SafeHttp.of({
    hostFault: () => Effect.succeed(null),
    request: ({ url }) => {
      called.push(url)
      const [status, headers] = answers[url] ?? [200, {}]
      return Effect.succeed<SafeResponse>({
        status,
        headers,
        body: new Uint8Array([1]),
        bytesRead: 1,
        truncated: false,
      })
    },
  })
  return fetchDocument(url, { owner: "", maxBytes: 10, timeout: "1 second" }, undefined).pipe(
    Effect.provideService(SafeHttp, http),
    Effect.match({ onSuccess: () => "fetched", onFailure: ({ message }) => message }),
    Effect.map((outcome) => ({ outcome, called })),
  )
}

describe("a redirect", () => {
  const from = "https://docs.example.com/a/docs.zip"
  for (const [location, to] of [
    ["https://cdn.example.com/docs.zip", "https://cdn.example.com/docs.zip"],
    ["/b.zip", "https://docs.example.com/b.zip"],
    ["b.zip?x=1", "https://docs.example.com/a/b.zip?x=1"],
    ["//cdn.example.com/b.zip", "https://cdn.example.com/b.zip"],
    ["http://docs.example.com/docs.zip", undefined],
    ["//:80", undefined],
  ] as const) {
    it.effect(`to ${location} ${to === undefined ? "is not followed" : "is followed"}`, function* () {
      const { outcome, called } = yield* fetched(from, { [from]: [302, { location }] })
      expect(called).toEqual(to === undefined ? [from] : [from, to])
      expect(outcome).toBe(
        to === undefined
          ? "redirects to an address that is no URL, or from https to http; use the final URL"
          : "fetched",
      )
    })
  }

  it.effect("from http to https is followed", function* () {
    const plain = from.replace("https", "http")
    expect((yield* fetched(plain, { [plain]: [301, { location: from }] })).called).toEqual([plain, from])
  })
})

it.effect("all redirects together have the deadline of one document", function* () {
  let hops = 0
  const http = SafeHttp.of({
    hostFault: () => Effect.succeed(null),
    request: ({ url }) =>
      Effect.sleep("4 seconds").pipe(
        Effect.as<SafeResponse>({
          status: 302,
          headers: { location: `${url}${++hops}` },
          body: new Uint8Array(),
          bytesRead: 0,
          truncated: false,
        }),
      ),
  })
  const url = "https://docs.example.com/"
  const fiber = yield* fetchDocument(url, { owner: "", maxBytes: 10, timeout: "10 seconds" }, undefined).pipe(
    Effect.provideService(SafeHttp, http),
    Effect.flip,
    Effect.forkChild,
  )
  yield* TestClock.adjust("10 seconds")
  expect(yield* Fiber.join(fiber)).toMatchObject({ message: "cannot be fetched in time", isTransient: true })
})

describe("an answer with a content encoding", () => {
  it.effect("is refused, and identity is accepted", function* () {
    const url = "https://docs.example.com/docs.zip"
    const outcome = (encoding: string) =>
      Effect.map(fetched(url, { [url]: [200, { "content-encoding": encoding }] }), (_) => _.outcome)
    for (const encoding of ["gzip", "br", "deflate", "identity, gzip"]) {
      expect(yield* outcome(encoding)).toBe("was sent compressed, although the request does not accept it")
    }
    expect([yield* outcome(""), yield* outcome(" Identity ")]).toEqual(["fetched", "fetched"])
  })
})
