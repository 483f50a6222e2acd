import { Effect } from "effect"
import { TestServer } from "../../support/server.ts"
import type { WireRequest } from "../../support/wire.ts"
import { must } from "../operations.ts"

/** The cookie that an answer sets, as a browser sends it back. */
export const cookieOf = (headers: Readonly<Record<string, unknown>>) => {
  const [set] = headers["set-cookie"] as ReadonlyArray<string>
  return set!.split(";", 1)[0]!
}

const withSession = Effect.fnUntraced(function* (method: string, path: string, request: WireRequest) {
  const { send } = yield* TestServer
  const answer = yield* send(method, path, request)
  if (answer.status !== 200) return yield* Effect.die(new Error(answer.text))
  const me = answer.json as { readonly csrfToken: string; readonly operations: ReadonlyArray<string> }
  const cookie = cookieOf(answer.headers)
  return { me, cookie, headers: { cookie, "x-csrf-token": me.csrfToken }, answer }
})

/** Signs in with a token or key. */
export const signIn = (as: string) => withSession("POST", "/api/v0/sessions", { as })

/** Creates a portal link; returns the token of its fragment. */
export const portalLink = Effect.fnUntraced(function* (headers: Record<string, string>, json: object = {}) {
  const { send } = yield* TestServer
  const { url } = yield* must(send, "POST", "/v1/portal/link", { json, headers })
  return new URL(url!).hash.slice(1)
})

/** Opens a portal link. */
export const openPortal = (token: string) => withSession("POST", "/api/v0/sessions/portal", { json: { token } })
