import type { WhoAmI } from "../domain/sessions/sessionRequests.ts"

/** The definition's types alone: the page calls the documented operations without the runtime of their client. */
export type Me = typeof WhoAmI.Encoded

/** What is wrong and what to do, as the service says it. */
export class Refused extends Error {
  readonly status: number
  constructor(status: number, message: string) {
    super(message)
    this.status = status
  }
}

let csrfToken: string | null = null

/** Keeps the token that changes send. */
export const remember = (me: Me): Me => {
  csrfToken = me.csrfToken
  return me
}

interface Request {
  readonly body?: object
  readonly credential?: string
}

/** Calls an operation. Fails with `Refused`, whose message is a sentence for people. */
export const call = async <A>(method: string, path: string, { body, credential }: Request = {}): Promise<A> => {
  const answer = await globalThis.fetch(path, {
    method,
    credentials: credential === undefined ? "same-origin" : "include",
    headers: {
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...(credential === undefined ? {} : { authorization: `Bearer ${credential}` }),
      ...(csrfToken === null ? {} : { "x-csrf-token": csrfToken }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  })
  const said = (await answer.json()) as A & { readonly error?: string; readonly message?: string }
  if (!answer.ok) throw new Refused(answer.status, said.error ?? said.message ?? "The request failed.")
  return said
}

export const whoAmI = async () => remember(await call<Me>("GET", "/api/v0/sessions/current"))
export const signIn = async (credential: string) => remember(await call<Me>("POST", "/api/v0/sessions", { credential }))
export const openPortal = async (token: string) =>
  remember(await call<Me>("POST", "/api/v0/sessions/portal", { body: { token } }))
export const signOut = async () => {
  await call("DELETE", "/api/v0/sessions/current")
  csrfToken = null
}
