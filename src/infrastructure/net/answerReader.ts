import type { SafeAnswer, SafeRequest } from "./SafeHttp.ts"

/** Limit of informational answers (1xx) before the final one: without it a server could send them without end. */
const maxInformational = 10

const emptyBody = new Uint8Array()

type Headers = Record<string, string | ReadonlyArray<string> | undefined>

const joinHeaders = (headers: Headers): Record<string, string> => {
  const joined: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    joined[name] = Array.isArray(value) ? value.join(", ") : `${value}`
  }
  return joined
}

/** Collects an answer within the limits of the request. */
export const makeAnswerReader = ({ maxRead, keep = maxRead }: SafeRequest) => {
  const chunks: Array<Uint8Array> = []
  let head: { readonly status: number; readonly headers: Headers } | undefined
  let informational = 0
  let bytesRead = 0

  const answer = (truncated: boolean): SafeAnswer => {
    const read = chunks.length === 0 ? emptyBody : Buffer.concat(chunks)
    const body = read.length > keep ? read.subarray(0, keep) : read
    return { status: head!.status, headers: joinHeaders(head!.headers), body, bytesRead, truncated }
  }
  return {
    /** Takes a status and headers. Returns whether the informational answers are within their limit. */
    onHead: (status: number, headers: Headers) => {
      if (status < 200) return ++informational <= maxInformational
      head = { status, headers }
      return true
    },
    /** Takes a part of the body. Returns whether the body is within its limit. */
    onData: (chunk: Uint8Array) => {
      if (bytesRead < keep) chunks.push(chunk)
      bytesRead += chunk.length
      return bytesRead <= maxRead
    },
    /** The answer; call it only after the headers have arrived. */
    answer,
    /** What has arrived so far; `undefined` before the headers. */
    partial: () => (head === undefined ? undefined : answer(false)),
  }
}
