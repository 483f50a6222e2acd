import { parseJson } from "./numberTexts.ts"

/** A request that the service refused or did not answer. The message has the sentence of the service. */
export class RequestFailed extends Error {
  /** Status of the response; 0: there was none, or a success that is not the service's. */
  readonly status: number
  /** `not_found`, `conflict`, …; empty: the response is not the service's. */
  readonly code: string
  /** How long the service asks to wait, in milliseconds. */
  readonly retryAfterMillis: number

  constructor(message: string, { status = 0, code = "", retryAfter = 0, cause = undefined as unknown }) {
    super(message, { cause })
    this.status = status
    this.code = code
    this.retryAfterMillis = retryAfter * 1000
  }

  /** Whether the same request can succeed later. What a proxy says for the service may pass; a redirect stays. */
  get isTransient() {
    const isForeign = this.code === "" && !(this.status >= 300 && this.status < 400)
    return isForeign || this.status === 429 || this.status >= 500 || this.code === "limit_reached"
  }
}

/**
 * Whether a request is refused for what it contains, so that it will never be accepted: by the service, or by a proxy
 * that takes no body of this size.
 */
export const isRefusal = (error: unknown): error is RequestFailed =>
  error instanceof RequestFailed && (error.status === 413 || error.code === "invalid_request")

/** Longer than the longest wait of a claim, in milliseconds. */
const requestTimeout = 45_000
/** The longest wait between two tries, in milliseconds, and the longest `Retry-After` that is obeyed. */
const maxWait = 10_000
const maxRetryAfter = 60_000

type Answer = Readonly<Record<string, unknown>>

/** The object of a response; an empty one for anything else. */
const parse = (text: string): Answer => {
  try {
    return (parseJson(text) ?? {}) as Answer
  } catch {
    return {}
  }
}

/** What an answer has if it has no `success`. */
const lists: Readonly<Record<string, string>> = {
  "jobs/claim": "jobs",
  "jobs/complete-batch": "jobs",
  "jobs/get": "steps",
}

/** Whether a success is the service's, and not of something in between. */
const isAnswer = (operation: string, answer: Answer) => {
  const list = lists[operation]
  return list === undefined ? answer["success"] === true : Array.isArray(answer[list])
}

const textIn = (value: unknown) => (typeof value === "string" ? value : undefined)

/** What this code needs of Node's `process`, which Bun and Deno have, too. */
export const { process } = globalThis as unknown as {
  readonly process: {
    readonly stderr: { readonly write: (text: string) => unknown }
    readonly once: (event: string, listener: () => unknown) => unknown
    readonly off: (event: string, listener: () => unknown) => unknown
  }
}

export const toError = (fault: unknown): Error => (fault instanceof Error ? fault : new Error(String(fault)))

/** A callback of the user, such as `onError`: its own fault must end neither a job nor the loop that calls it. */
export const safely =
  <A extends ReadonlyArray<unknown>>(callback: (...args: A) => void) =>
  (...args: A): void =>
    void (async () => callback(...args))().catch(() => {})

/** Whether a text can be the value of a header. An error of the runtime would repeat one that cannot. */
export const fitsHeader = (text: string): boolean => /^[\t\x20-\x7e\x80-\xff]*$/.test(text.trim())

/** Whether a URL has a user name or a password. No request has one, and an error of the runtime would repeat it. */
export const hasCredentials = (url: string): boolean => /^https?:\/\/[^/?#\\]*@/i.test(url.trim())

/** Posts JSON to an operation under `/v1`. Rejects with `RequestFailed`. */
export type Post = (operation: string, body: string, signal?: AbortSignal) => Promise<Answer>

export const poster = (baseUrl: string | URL, key: string, send: typeof fetch = fetch): Post => {
  const base = String(baseUrl).replace(/(?<!\/)\/+$/, "")
  if (!key?.trim()) throw new TypeError("The key is missing: pass an API key of the org (svc_…).")
  if (hasCredentials(base)) throw new TypeError("baseUrl must have no user name or password. The key is enough.")
  if (!fitsHeader(key)) throw new TypeError("The key has characters that no header can have, such as a line break.")
  const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" }
  return async (operation, body, signal) => {
    const timeout = AbortSignal.timeout(requestTimeout)
    const options = { method: "POST", headers, body, signal: signal ? AbortSignal.any([signal, timeout]) : timeout }
    try {
      // A redirect would take the key to an address that nobody chose.
      const response = await send(`${base}/v1/${operation}`, { ...options, redirect: "manual" })
      const { ok, status } = response
      const answer = parse(await response.text())
      if (ok && isAnswer(operation, answer)) return answer
      const code = ok ? undefined : textIn(answer["code"])
      const retryAfter = Number(response.headers.get("retry-after")) || 0
      const said = code && (textIn(answer["error"]) ?? textIn(answer["message"]))
      const foreign = `${base} answers with status ${status}, but not as Gatehouse does. Check the address.`
      throw new RequestFailed(said || foreign, { status: ok ? 0 : status, code: code ?? "", retryAfter })
    } catch (cause) {
      if (cause instanceof RequestFailed) throw cause
      const { cause: inner, message } = cause as { cause?: { code?: string; message?: string }; message: string }
      throw new RequestFailed(`${base} does not answer: ${inner?.code ?? inner?.message ?? message}`, { cause })
    }
  }
}

/** The wait after that many failures in a row, in milliseconds: it doubles up to ten seconds, ± 20 %. */
export const backoff = (failures: number, error: unknown): number => {
  const wait = Math.min(maxWait, 100 * 2 ** Math.min(failures, 10)) * (0.8 + 0.4 * Math.random())
  return Math.max(wait, error instanceof RequestFailed ? Math.min(maxRetryAfter, error.retryAfterMillis) : 0)
}

/** The longest wait of a timer, in milliseconds, 24 days: after a longer one it would fire at once. */
const maxTimer = 2 ** 31 - 1

/** Waits, or until the signal is aborted. */
export const pause = (millis: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    if (signal?.aborted === true) return resolve()
    const end = () => {
      clearTimeout(timer)
      signal?.removeEventListener("abort", end)
      resolve()
    }
    const timer = setTimeout(end, Math.min(millis, maxTimer))
    signal?.addEventListener("abort", end)
  })
