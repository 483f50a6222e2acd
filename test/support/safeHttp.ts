import { assert } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import type { FailureKind } from "#src/domain/webhooks/WebhookSender.ts"
import {
  SafeHttp,
  type SafeHttpError,
  type SafeHttpOptions,
  type SafeRequest,
} from "#src/infrastructure/net/SafeHttp.ts"

/** A client, by default in open mode, which resolves every name to the receivers' address. */
export const safeClient = Effect.fnUntraced(function* (options: Partial<SafeHttpOptions> = {}) {
  const asked: Array<string> = []
  const { allowPrivateNetworks = true, resolve = async () => ["127.0.0.1"] } = options
  const layer = SafeHttp.layer({
    ...options,
    allowPrivateNetworks,
    resolve: (hostname) => {
      asked.push(hostname)
      return resolve(hostname)
    },
  })
  const http = Context.get(yield* Layer.build(layer), SafeHttp)
  const post = (url: string, request: Partial<SafeRequest> = {}) =>
    http.request({
      url,
      method: "POST",
      owner: "org",
      body: "{}",
      timeout: "30 seconds",
      maxRead: 64 * 1024,
      keep: 4 * 1024,
      ...request,
    })
  return { post, asked, fails: (...args: Parameters<typeof post>) => Effect.flip(post(...args)) }
})

export const isKind = (error: SafeHttpError, kind: FailureKind) => assert.strictEqual(error.kind, kind, error.message)
export const text = (bytes: Uint8Array) => Buffer.from(bytes).toString()
