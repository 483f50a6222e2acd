import table from "virtual:operation-table"
import { parseJson } from "../../domain/exactJson.ts"
import { bind, GatehouseError } from "../../../packages/client/src/runtime.ts"
import { isInFrame } from "./embedded.ts"
import type { ResponseBody, Args, OperationId } from "./Operations.ts"

export { GatehouseError }

/** The token that changes send, and whose session it is. All tabs share the session, and each keeps its token. */
let session = { csrfToken: null as string | null, reader: "" }

export const setSession = (csrfToken: string | null, reader = "") => {
  session = { csrfToken, reader }
}

let readSession: (reader: string) => Promise<unknown> = () => Promise.resolve()
let reading: Promise<unknown> | undefined

/** Sets what reads the session again when a request is refused. It gets the reader who has sent the request. */
export const onRefusal = (read: typeof readSession) => {
  readSession = read
}

/** The session in a frame: in memory alone, because browsers block cookies there. */
let bearer: string | undefined

/** Keeps the session of a frame. */
export const setBearer = (token: string | undefined) => {
  bearer = token
}

export const bearerHeader = (): Record<string, string> =>
  bearer === undefined ? {} : { authorization: `Bearer ${bearer}` }

interface CallOptions {
  /** The org that the operation acts for, under /v1. */
  readonly orgId?: string | undefined
  /** Signs in with this credential instead of the session. */
  readonly credential?: string | undefined
  readonly idempotencyKey?: string | undefined
  readonly signal?: AbortSignal | undefined
}

type Method = (args: object, options: CallOptions) => Promise<unknown>

/** How much later it is for the service than for this browser, whose clock may be wrong, in milliseconds. */
let laterMillis = 0
/** A response is not on its way for longer. */
const timeoutMillis = 30_000

/** The time of the service, as its responses say it. */
export const serviceNow = () => Date.now() + laterMillis

const readClock = (response: Response) => {
  const later = Date.parse(response.headers.get("date") ?? "") - Date.now()
  if (!Number.isNaN(later)) laterMillis = Math.abs(later) > timeoutMillis ? later : 0
  return response
}

/** The client of `packages/client`, which sends what a session needs besides. */
const clientFor = ({ credential, orgId }: CallOptions) =>
  bind(table, {
    baseUrl: "",
    credential: credential ?? bearer,
    timeoutMillis,
    parse: parseJson,
    fetch: (url, init) => {
      const headers = new Headers(init?.headers)
      if (session.csrfToken !== null && credential === undefined) headers.set("x-csrf-token", session.csrfToken)
      if (orgId !== undefined && isOfOrg(String(url))) headers.set("x-org-id", orgId)
      const credentials = isInFrame ? "omit" : "same-origin"
      return globalThis.fetch(url, { ...init, headers, credentials }).then(readClock)
    },
  }) as Record<string, Record<string, Method>>

const isOfOrg = (path: string) => path.startsWith("/v1/")

/** Whether an operation acts for the org of the page, which its path and arguments do not name. */
export const actsForOrg = (id: OperationId) => {
  const [group, name] = id.split(".") as [string, string]
  return isOfOrg(table[group]?.[name]?.[1] ?? "")
}

/** Operations that begin or read a session: a refusal says nothing of the one that the page has. */
const ofSessions: ReadonlyArray<OperationId> = ["sessions.create", "sessions.current", "sessions.openPortal"]

/**
 * Calls an operation. Fails with `GatehouseError`, whose message is a sentence for people. What is refused, because the
 * same reader has another session since, as by another tab, is sent once more with that.
 */
export const call = async <Id extends OperationId>(id: Id, args: Args<Id>, options: CallOptions = {}) => {
  const [group, name] = id.split(".") as [string, string]
  const { idempotencyKey, signal } = options
  const send = () =>
    clientFor(options)[group]![name]!(args as object, { idempotencyKey, signal }) as Promise<ResponseBody<Id>>
  const { csrfToken, reader } = session
  try {
    return await send()
  } catch (error) {
    if (!(error instanceof GatehouseError) || error.status !== 401 || ofSessions.includes(id)) throw error
    if (session.csrfToken === csrfToken) {
      await (reading ??= readSession(reader).finally(() => (reading = undefined)))
    }
    if (session.csrfToken === csrfToken || session.reader !== reader) throw error
    return await send()
  }
}

/** Whether the service answers, if only with a refusal. */
export const answers = () =>
  call("sessions.current", {}, { signal: AbortSignal.timeout(5_000) }).then(
    () => true,
    (error: Error) => error instanceof GatehouseError && error.status < 500,
  )
