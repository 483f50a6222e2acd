import { Effect } from "effect"
import { HttpServerRequest, HttpServerResponse } from "effect/http"
import { createHash } from "node:crypto"
import { promisify } from "node:util"
import { brotliCompress, constants, gzip } from "node:zlib"

/** What is the same for everyone until another version runs, and holds no secret. */
export interface PublicDocument {
  readonly contentType: string
  readonly text: string
  /** Whether the document's URL names its hash, so that a client need never ask for it again. */
  readonly isImmutable: boolean
}

type Coding = "br" | "gzip" | "identity"

/** The hash by which a document is known. */
export const hashOf = (text: string): string => createHash("sha256").update(text).digest("base64url")

/** Whether an `Accept-Encoding` takes a coding (RFC 9110, 12.5.3). */
const takes = (header: string, coding: Coding): boolean => {
  const weights = header.split(",").map((one) => {
    const [name, weight] = one.split(/;\s*q=/i)
    return [name!.trim().toLowerCase(), Number(weight ?? 1)] as const
  })
  const weightOf = (name: string) => weights.find(([other]) => other === name)?.[1]
  return (weightOf(coding) ?? weightOf("*") ?? 0) > 0
}

const codingFor = (header: string | undefined): Coding => {
  if (header === undefined) return "identity"
  if (takes(header, "br")) return "br"
  return takes(header, "gzip") ? "gzip" : "identity"
}

/** Whether an `If-None-Match` names the tag; compared weakly, as a proxy that compresses makes tags weak (RFC 9110, 13.1.2). */
const names = (header: string | undefined, tag: string) =>
  header?.split(",").some((one) => ["*", tag].includes(one.trim().replace(/^W\//, ""))) ?? false

/** The answer in one coding, and the one to a client that has it already. */
const answersOf = ({ contentType, isImmutable }: PublicDocument, hash: string, coding: Coding, bytes: Uint8Array) => {
  const headers = {
    etag: coding === "identity" ? `"${hash}"` : `"${hash}-${coding}"`,
    "cache-control": isImmutable ? "public, max-age=31536000, immutable" : "no-cache",
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
 * Compresses a document, outside the event loop, and answers requests for it from then on: the same bytes each time,
 * in the best coding that the client takes, or 304 to one that has them.
 */
export const prepare = (document: PublicDocument) =>
  Effect.promise(async () => {
    const bytes = Buffer.from(document.text)
    // Its last two qualities take ten times as long for a tenth less.
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
      return names(headers["if-none-match"], etag) ? unchanged : whole
    })
  })
