import { Effect, Result } from "effect"
import type { IncomingMessage, ServerResponse } from "node:http"
import type { ValidKey } from "../../domain/keys/ApiKey.ts"
import { ApiKeys } from "../../domain/keys/ApiKeys.ts"
import { ValidationCounter } from "../../domain/keys/KeyLookup.ts"
import { administratorCheck } from "./Authorization.ts"
import * as Credentials from "./credentials.ts"
import { keepBody } from "./requestBody.ts"
import { requestIdOf } from "./requestId.ts"
import { series } from "./requestMetrics.ts"

/** Answers a request before the router, or calls `pass` for the router to answer it. */
export type HotPath = (request: IncomingMessage, response: ServerResponse, pass: () => void) => void

/** Passes every request to the router. */
export const none: HotPath = (_request, _response, pass) => pass()

const json = new Set(["application/json", "application/json; charset=utf-8"])

const path = "/api/v0/keys/validate"

/** In bytes. A validation has about 60; a request with a larger body is passed on before it is read. */
const maxBody = 1024

const mayBeHot = ({ method, url, headers }: IncomingMessage) =>
  url === path &&
  method === "POST" &&
  json.has(headers["content-type"]!) &&
  headers["content-encoding"] === undefined &&
  headers.expect === undefined &&
  Number(headers["content-length"]) <= maxBody

const noBytes: Buffer = Buffer.alloc(0)

/** Reads a body whose length `mayBeHot` has bounded. When the client goes away first, nobody waits for an answer. */
const readBody = (request: IncomingMessage, done: (body: Buffer) => void) => {
  let body = noBytes
  request
    .on("data", (piece: Buffer) => void (body = body.length === 0 ? piece : Buffer.concat([body, piece])))
    .on("end", () => done(body))
}

/** The key in the body of a validation; `undefined` when the body is invalid. */
const keyIn = (body: Buffer): string | undefined => {
  try {
    const { key } = JSON.parse(body.toString()) as { readonly key?: unknown }
    return typeof key === "string" ? key : undefined
  } catch {
    return undefined
  }
}

/**
 * Answers the validation of a valid key by a caller with a valid credential. Everything else, also each refusal, goes to
 * the router; a property test compares the bytes of both. A validation takes 28 µs of CPU here, 45 µs in an Effect
 * middleware before the router, and 83 µs through the router. With the key memory off, the router takes 30 % more.
 */
export const make: Effect.Effect<HotPath, never, Effect.Services<typeof administratorCheck> | ApiKeys> = Effect.gen(
  function* () {
    const keys = yield* ApiKeys
    const isAdministrator = yield* administratorCheck
    const context = yield* Effect.context<never>()
    const count = yield* ValidationCounter
    const duration = series("POST", path, 200)

    const authorize = (headers: IncomingMessage["headers"], done: (mayCall: boolean) => void) => {
      const credential = Result.getOrUndefined(Credentials.parse(headers))
      if (credential === undefined) return done(false)
      if (isAdministrator(credential)) return done(true)
      keys.recognize(credential.token, (grant) => done(grant !== undefined))
    }

    const answer = (
      { headers }: IncomingMessage,
      response: ServerResponse,
      { keyId, orgId, projectId }: ValidKey,
      startedAt: number,
    ) => {
      const body = JSON.stringify({ keyId, orgId, projectId })
      response.writeHead(200, {
        "content-type": "application/json",
        "content-length": body.length,
        "x-request-id": requestIdOf(headers["x-request-id"]),
        "cache-control": "no-store",
      })
      response.end(body)
      duration.updateUnsafe((performance.now() - startedAt) / 1000, context)
    }

    return (request, response, pass) => {
      if (!mayBeHot(request)) return pass()
      const startedAt = performance.now()
      authorize(request.headers, (mayCall) => {
        if (!mayCall) return pass()
        readBody(request, (body) => {
          const passOn = () => {
            keepBody(request, body)
            pass()
          }
          const key = keyIn(body)
          if (key === undefined) return passOn()
          keys.recognize(key, (grant, source) => {
            // The operation counts a key with a rate limit.
            if (grant === undefined || grant.rateLimit !== null) return passOn()
            count("valid", source, grant.orgId)
            if (!response.destroyed) answer(request, response, grant, startedAt)
          })
        })
      })
    }
  },
)
