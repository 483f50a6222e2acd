import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"
import { promisify } from "node:util"
import { brotliCompress, constants, gzip } from "node:zlib"

/** A document that is public and the same for everyone in one version of the service. */
export interface PublicDocument {
  readonly contentType: string
  readonly text: string | Uint8Array
  /** Whether the URL contains the hash: then clients cache the document for good. */
  readonly isImmutable?: boolean
}

type Coding = "br" | "gzip" | "identity"

/** The hash of a document, for its ETag. */
const hashOf = (text: string | Uint8Array): string => createHash("sha256").update(text).digest("base64url")

/** Whether an `Accept-Encoding` accepts a coding. Source: RFC 9110, section 12.5.3. */
const accepts = (header: string, coding: Coding): boolean => {
  const weights = header.split(",").map((one) => {
    const [name, weight] = one.split(/;\s*q=/i)
    return [name!.trim().toLowerCase(), Number(weight ?? 1)] as const
  })
  const weightOf = (name: string) => weights.find(([other]) => other === name)?.[1]
  return (weightOf(coding) ?? weightOf("*") ?? 0) > 0
}

const codingFor = (header: string | undefined): Coding => {
  if (header === undefined) return "identity"
  if (accepts(header, "br")) return "br"
  return accepts(header, "gzip") ? "gzip" : "identity"
}

/** Whether an `If-None-Match` has the tag. Compares weakly: a proxy that compresses makes tags weak. Source: RFC 9110, section 13.1.2. */
const hasTag = (header: string | undefined, tag: string) =>
  header?.split(",").some((one) => ["*", tag].includes(one.trim().replace(/^W\//, ""))) ?? false

/** The answer in one coding: the whole document, and the 304. */
const answersOf = ({ contentType, isImmutable }: PublicDocument, hash: string, coding: Coding, bytes: Uint8Array) => {
  const headers = {
    etag: coding === "identity" ? `"${hash}"` : `"${hash}-${coding}"`,
    "cache-control": isImmutable === true ? "public, max-age=31536000, immutable" : "no-cache",
    vary: "accept-encoding",
  }
  const encoding = coding === "identity" ? {} : { "content-encoding": coding }
  return {
    etag: headers.etag,
    whole: HttpServerResponse.uint8Array(bytes, { contentType, headers: { ...headers, ...encoding } }),
    unchanged: HttpServerResponse.empty({ status: 304, headers }),
  }
}

/**
 * Compresses a document outside the event loop. Returns the effect that answers requests for it: in the best coding that
 * the client accepts, or with a 304.
 */
export const prepare = (document: PublicDocument) =>
  Effect.promise(async () => {
    const bytes = typeof document.text === "string" ? Buffer.from(document.text) : document.text
    // Qualities 10 and 11 take ten times as long and save a tenth.
    const params = { [constants.BROTLI_PARAM_QUALITY]: 9, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length }
    const [br, gzipped] = await Promise.all([promisify(brotliCompress)(bytes, { params }), promisify(gzip)(bytes)])
    const hash = hashOf(document.text)
    const answers = {
      br: answersOf(document, hash, "br", br),
      gzip: answersOf(document, hash, "gzip", gzipped),
      identity: answersOf(document, hash, "identity", bytes),
    }
    return HttpServerRequest.HttpServerRequest.useSync(({ headers }) => {
      const { etag, whole, unchanged } = answers[codingFor(headers["accept-encoding"])]
      return hasTag(headers["if-none-match"], etag) ? unchanged : whole
    })
  })
