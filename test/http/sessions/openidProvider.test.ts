import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { signInWith } from "../../support/identityProvider.ts"
import { it } from "../../support/it.ts"
import { startOpenidProvider } from "../../support/openidProvider.ts"
import { closedPort } from "../../support/receiver.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"

/**
 * Promise (Signing in): A person signs in at a real provider of OpenID Connect, by code with PKCE, in a browser that
 * alone can finish it; the session ends with the id token, at sign-out, and by back-channel logout.
 */

/** A browser without a window: it follows redirects, and keeps the cookies of each host and port. */
const makeBrowser = () => {
  const jars = new Map<string, Map<string, string>>()
  const go = async (
    address: string,
    form?: Readonly<Record<string, string>>,
  ): Promise<{ url: string; text: string; status: number }> => {
    const { origin } = new URL(address)
    const jar = jars.get(origin) ?? new Map<string, string>()
    jars.set(origin, jar)
    const answer = await globalThis.fetch(address, {
      redirect: "manual",
      method: form === undefined ? "GET" : "POST",
      headers: { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join("; ") },
      ...(form === undefined ? {} : { body: new URLSearchParams(form) }),
    })
    for (const set of answer.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(set)!
      if (value === "" || /Max-Age=0|expires=Thu, 01 Jan 1970/i.test(set)) jar.delete(name!)
      else jar.set(name!, value!)
    }
    const location = answer.headers.get("location")
    if (location !== null) return go(new URL(location, address).href)
    return { url: address, text: await answer.text(), status: answer.status }
  }
  /** Fills the form of the page with these fields beside its hidden ones, and sends it. */
  const submit = (page: { url: string; text: string }, fields: Readonly<Record<string, string>> = {}) => {
    const action = /<form[^>]* action="([^"]+)"/.exec(page.text)![1]!.replaceAll("&amp;", "&")
    const hidden = [...page.text.matchAll(/<input[^>]* type="hidden"[^>]*>/g)].map(([input]) => [
      /name="([^"]*)"/.exec(input)![1]!,
      /value="([^"]*)"/.exec(input)?.[1] ?? "",
    ])
    return go(new URL(action, page.url).href, { ...Object.fromEntries(hidden), ...fields })
  }
  return { go, submit }
}

it.live("people sign in at a real provider, and it signs them out at every replica", function* () {
  const port = yield* closedPort
  const url = `http://127.0.0.1:${port}`
  const provider = yield* startOpenidProvider({
    redirectUri: `${url}/console/sign-in/callback`,
    logoutUri: `${url}/console/sign-out`,
  })
  const roles = { groups: { platform: "administrator", support: "operator" } }
  const environment = { ...signInWith(provider.issuer, roles), ...(yield* onPostgres()) }
  yield* Effect.gen(function* () {
    const { go, submit } = makeBrowser()
    const ask = (browser: typeof go, path: string, at = url) =>
      Effect.map(
        Effect.promise(() => browser(`${at}${path}`)),
        ({ status, text }) => ({ status, json: JSON.parse(text) as unknown }),
      )
    /** Signs in at the provider's own pages: a name, any password, and consent. */
    const signIn = Effect.fnUntraced(function* ({ go, submit }: ReturnType<typeof makeBrowser>, login: string) {
      const form = yield* Effect.promise(() => go(`${url}/console/sign-in`))
      const consent = yield* Effect.promise(() => submit(form, { login, password: "any" }))
      return yield* Effect.promise(() => submit(consent))
    })
    yield* signIn({ go, submit }, "jo")
    const me = yield* ask(go, "/api/v0/sessions/current")
    expect(me.json).toMatchObject({
      principal: "person",
      person: { subject: "jo", name: "Jo Doe", email: "jo@example.com", role: "administrator" },
    })
    // Whoever is signed in there already is not asked again.
    yield* Effect.promise(() => go(`${url}/console/sign-in`))
    expect((yield* ask(go, "/api/v0/sessions/current")).status).toBe(200)

    const vi = makeBrowser()
    yield* signIn(vi, "vi")
    expect((yield* ask(vi.go, "/api/v0/sessions/current")).json).toMatchObject({ person: { role: "operator" } })
    const ex = makeBrowser()
    const refused = yield* signIn(ex, "ex")
    expect([refused.status, refused.text.includes("You have no access")]).toEqual([403, true])
    expect((yield* ask(ex.go, "/api/v0/sessions/current")).status).toBe(401)

    // They sign out at the provider, which tells the service.
    const end = yield* Effect.promise(() => go(`${provider.issuer}/session/end`))
    yield* Effect.promise(() => submit(end, { logout: "yes" }))
    yield* until("the end of the session", ask(go, "/api/v0/sessions/current"), ({ status }) => status === 401)
    expect((yield* ask(vi.go, "/api/v0/sessions/current")).status).toBe(200)
    expect(provider.faults).toEqual([])
  }).pipe(Effect.provide(TestServer.layer({ ...environment, PORT: String(port), BASE_URL: url })))
})
