import { Effect } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"

const tags = new WeakMap<HttpServerResponse.HttpServerResponse, string>()

/** The entity tag of an answer that is made once for all requests, from its bytes. */
const tagOf = (answer: HttpServerResponse.HttpServerResponse, bytes: Uint8Array) => {
  const known = tags.get(answer)
  if (known !== undefined) return known
  const tag = `"${createHash("sha256").update(bytes).digest("base64url")}"`
  tags.set(answer, tag)
  return tag
}

/** Whether an `If-None-Match` names the tag; compared weakly, as a proxy that compresses makes tags weak (RFC 9110, 13.1.2). */
const names = (header: string | undefined, tag: string) =>
  header?.split(",").some((one) => ["*", tag].includes(one.trim().replace(/^W\//, ""))) ?? false

/**
 * For routes whose answer is the same until another version runs, and holds no secret: clients may keep it, and ask each
 * time whether it still holds, which is answered with 304 and no body.
 */
export const revalidated = HttpRouter.middleware((operation) =>
  Effect.gen(function* () {
    const answer = yield* operation
    if (answer.body._tag !== "Uint8Array") return answer
    const etag = tagOf(answer, answer.body.body)
    const headers = { etag, "cache-control": "no-cache" }
    const { headers: sent } = yield* HttpServerRequest.HttpServerRequest
    return names(sent["if-none-match"], etag)
      ? HttpServerResponse.empty({ status: 304, headers })
      : HttpServerResponse.setHeaders(answer, headers)
  }),
)
