import { parseJson } from "./numberTexts.ts"

export interface ClientOptions {
  /** The address of the service: `https://gatehouse.example.com`. */
  readonly baseUrl: string
  /** An API key (`svc_…`), a token of ADMIN_TOKEN, or the OIDC token of a CI run. Default: none, as in open mode. */
  readonly credential?: string | undefined
  /** How long a call may take, in milliseconds. Default: 60,000. */
  readonly timeoutMillis?: number | undefined
  /** Another `fetch`, for tests and proxies. */
  readonly fetch?: typeof fetch | undefined
  /** Another parser of JSON, for numbers of more digits than JavaScript has. */
  readonly parse?: ((text: string) => unknown) | undefined
}
type Parse = NonNullable<ClientOptions["parse"]>

export interface CallOptions {
  /** Makes a call that creates something safe to repeat: a new key for each thing to create. */
  readonly idempotencyKey?: string | undefined
  /** Ends the call early. */
  readonly signal?: AbortSignal | undefined
}

/**
 * A response that is not 2xx, or not the service's. `code` is for programs, `message` is a sentence for people.
 */
export class GatehouseError extends Error {
  override readonly name = "GatehouseError"
  readonly status: number
  /** `not_found`, `conflict`, `invalid_request`, … */
  readonly code: string
  /** The id under which the service logs the request. */
  readonly requestId: string | undefined
  /** How long to wait before the next try; present on 429 and 503. */
  readonly retryAfterSeconds: number | undefined

  constructor(
    response: Response,
    body: { readonly error?: unknown; readonly message?: unknown; readonly code?: unknown },
  ) {
    const location = response.headers.get("location")
    const foreign =
      location === null
        ? `The address answers with status ${response.status}, but not as Gatehouse does. Check baseUrl.`
        : `The service redirects to ${location}, and a redirect is not followed. Use that address if you trust it.`
    const said = body.error ?? body.message
    const isOwn = typeof body.code === "string" && typeof said === "string"
    super(isOwn ? said : foreign)
    this.status = response.status
    this.code = isOwn ? (body.code as string) : "unknown"
    this.requestId = response.headers.get("x-request-id") ?? undefined
    this.retryAfterSeconds = Number(response.headers.get("retry-after")) || undefined
  }
}

/** `isText`: a success may be a text, or nothing. */
export type Operation = readonly [
  method: string,
  path: string,
  query: ReadonlyArray<string>,
  hasBody: boolean,
  isText?: boolean,
]
export type Operations = Readonly<Record<string, Readonly<Record<string, Operation>>>>

type Arguments = Readonly<Record<string, unknown>>

/** Divides the arguments of a call into path, query and body. */
const requestOf = ([, path, query, hasBody]: Operation, args: Arguments) => {
  const rest = { ...args }
  const take = (name: string) => {
    const value = rest[name]
    delete rest[name]
    return value
  }
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(take(name))))
  const search = new URLSearchParams()
  for (const name of query) {
    const value = take(name)
    if (value !== undefined) for (const one of [value].flat()) search.append(name, String(one))
  }
  // The only argument of an operation whose body is a list is the list.
  const body = hasBody ? JSON.stringify(Array.isArray(args) ? args : rest) : undefined
  return { path: search.size === 0 ? filled : `${filled}?${search}`, body }
}

const json = async (response: Response): Promise<object> => {
  try {
    return ((await response.json()) ?? {}) as object
  } catch {
    return {}
  }
}

/** The value of a response. What a proxy says in place of the service is not repeated. */
const valueOf = async (response: Response, isText: boolean, parse: Parse): Promise<unknown> => {
  const text = await response.text()
  if (isText) return text || undefined
  try {
    return parse(text)
  } catch {
    throw new GatehouseError(response, {})
  }
}

/**
 * Reads one server-sent event. An event with a name is `{ id, event, data }`; one without is its data, which is JSON.
 */
const partOf = (frame: string, parse: Parse): unknown => {
  const fields = new Map(
    frame.split("\n").map((line) => {
      const [name = "", ...rest] = line.split(":")
      return [name, rest.join(":").trim()] as const
    }),
  )
  const text = fields.get("data") ?? ""
  if (text === "" || text === "[DONE]") return text
  const data = parse(text)
  const event = fields.get("event")
  return event === undefined ? data : { id: fields.get("id") ?? "", event, data }
}

const lineOf = (line: string, parse: Parse): unknown => (line === "" ? line : parse(line))

/** The parts of a stream of server-sent events, up to `[DONE]`; or the lines of one, each of which is JSON. */
async function* parts(response: Response, isLines: boolean, parse: Parse): AsyncGenerator<unknown, void> {
  let text = ""
  const decoder = new TextDecoder()
  const reader = response.body!.getReader()
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) {
      text += decoder.decode(read.value, { stream: true })
      const frames = text.split(isLines ? "\n" : "\n\n")
      text = frames.pop()!
      for (const frame of frames) {
        const part = isLines ? lineOf(frame, parse) : partOf(frame, parse)
        if (part === "[DONE]") return
        if (part !== "") yield part
      }
    }
    if (text.trim() !== "") throw new Error("The response was cut off.")
  } finally {
    await reader.cancel()
  }
}

/** Makes one function for each operation, by group. */
export const bind = (operations: Operations, options: ClientOptions): unknown => {
  const { baseUrl, credential, parse = parseJson, timeoutMillis = 60_000 } = options
  const send = options.fetch ?? fetch
  const base = baseUrl.replace(/(?<!\/)\/+$/, "")
  // No request has them, and an error of the runtime would repeat them.
  if (/^https?:\/\/[^/?#\\]*@/i.test(base)) throw new TypeError("baseUrl must have no user name or password.")
  // An error of the runtime would repeat it.
  if (credential !== undefined && !/^[\t\x20-\x7e\x80-\xff]*$/.test(credential.trim())) {
    throw new TypeError("The credential has characters that no header can have, such as a line break.")
  }

  const call = async (operation: Operation, args: Arguments = {}, { idempotencyKey, signal }: CallOptions = {}) => {
    const { body, path } = requestOf(operation, args)
    const deadline = new AbortController()
    const timer = setTimeout(
      () => deadline.abort(new DOMException("The request took too long.", "TimeoutError")),
      timeoutMillis,
    )
    const response = await send(`${base}${path}`, {
      method: operation[0],
      headers: {
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(credential === undefined ? {} : { authorization: `Bearer ${credential}` }),
        ...(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }),
      },
      ...(body === undefined ? {} : { body }),
      // A redirect would take the credential to an address that nobody chose.
      redirect: "manual",
      signal: signal === undefined ? deadline.signal : AbortSignal.any([signal, deadline.signal]),
    }).catch((error: unknown) => {
      clearTimeout(timer)
      throw error
    })
    // A stream may last longer than a request: the deadline ends with its first bytes.
    const type = response.headers.get("content-type") ?? ""
    const isLines = type.startsWith("application/x-ndjson")
    const isStream = response.ok && (isLines || type.startsWith("text/event-stream"))
    if (isStream) clearTimeout(timer)
    try {
      if (!response.ok) throw new GatehouseError(response, await json(response))
      return isStream
        ? parts(response, isLines, parse)
        : await valueOf(response, operation[4] === true && /^(text\/plain|$)/.test(type), parse)
    } finally {
      clearTimeout(timer)
    }
  }

  return Object.fromEntries(
    Object.entries(operations).map(([group, members]) => [
      group,
      Object.fromEntries(
        Object.entries(members).map(([name, operation]) => [
          name,
          (args?: Arguments, options?: CallOptions) => call(operation, args, options),
        ]),
      ),
    ]),
  )
}
