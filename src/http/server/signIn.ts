import { DateTime, Duration, Effect, Redacted } from "effect"
import { HttpRouter, HttpServerRequest, HttpServerResponse } from "effect/http"
import type { TooManyRequests, Unavailable } from "../../domain/Errors.ts"
import { limitWrongCredentials } from "../../domain/wrongCredentials.ts"
import { People, type SignInFailed } from "../../domain/sessions/People.ts"
import { clientAddress } from "../clientAddress.ts"
import { AdminTokens, isBehindTls, readCookie, setCookie } from "../credentials.ts"

// Signing in to the console with the company's identity: where the browser begins, and where the provider sends it
// back. These pages are for browsers, and no operations.

const signInPath = "/console/sign-in"
/** Where the provider sends the browser back. */
export const callbackPath = `${signInPath}/callback`
/** Where the provider ends sessions (OpenID Connect Back-Channel Logout 1.0). */
const logoutPath = "/console/sign-out"

/** How long a person has at the provider. */
const signInLifetime = Duration.minutes(10)
const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/

/** The colours and distances of the console (`tokens.css`), whose files this page does not need. */
const style =
  ":root{color-scheme:light dark}" +
  "body{font:.875rem/1.5 system-ui,sans-serif;margin:0;background:light-dark(#f6f8fa,#0d1117);color:light-dark(#16202b,#e8edf2)}" +
  "main{box-sizing:border-box;width:min(26rem,100% - 2rem);margin:15vh auto;padding:1.5rem;border-radius:.625rem;" +
  "background:light-dark(#fff,#151b23);border:1px solid light-dark(#e1e6eb,#262e39)}" +
  "h1{font-size:1.25rem;margin:0}p{margin:1rem 0 0;overflow-wrap:anywhere}a{color:light-dark(#4338ca,#a5b4fc)}"
const escaped = (text: string) =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;")

/** A page without scripts. `lines` are HTML. */
const page = (status: number, title: string, lines: ReadonlyArray<string>) =>
  HttpServerResponse.text(
    `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">` +
      `<title>${title} · Gatehouse</title><style>${style}</style></head><body><main><h1>${title}</h1>` +
      `${lines.map((line) => `<p>${line}</p>`).join("")}</main></body></html>`,
    { status, contentType: "text/html; charset=utf-8", headers: { "referrer-policy": "no-referrer" } },
  )

/** The page for who was not signed in. It has nothing of the service, and nothing that the provider has said. */
const refusals: Record<SignInFailed["reason"] | "busy", readonly [status: number, title: string, line: string]> = {
  state: [
    400,
    "Sign in again",
    "This sign-in took longer than ten minutes, or began in another browser or at another address.",
  ],
  denied: [403, "You are not signed in", "Your company's sign-in did not let you in."],
  provider: [
    503,
    "Signing in does not work now",
    "Your company's sign-in, or the database here, does not answer as it should. The log of this service says which.",
  ],
  role: [
    403,
    "You have no access",
    "Your company knows you, but none of your groups has a role here. Ask the operator of this service for one.",
  ],
  busy: [429, "Too many attempts", "Signing in failed too often from your network. Try again in a minute."],
}

const redirect = (url: string) =>
  HttpServerResponse.redirect(url, { status: 303, headers: { "referrer-policy": "no-referrer" } })

/** The pages of the sign-in, if the operator has set it up. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const people = yield* People
    if (people === undefined) return
    const { baseUrl } = yield* AdminTokens
    const failures = limitWrongCredentials("Signing in failed too often from this address.")
    const refusal = (reason: keyof typeof refusals) => {
      const [status, title, line] = refusals[reason]
      const other = `<a href="${signInPath}?other">Use another account</a>`
      const console = `<a href="${escaped(baseUrl)}/console">Open the console</a>`
      return page(status, title, [line, ...(reason === "role" || reason === "denied" ? [other] : []), console])
    }
    const request = Effect.map(HttpServerRequest.HttpServerRequest, ({ headers, url }) => ({
      headers,
      query: new URL(url, "http://localhost").searchParams,
    }))

    /**
     * Limits the sign-ins that fail. A callback that this browser did not begin counts for nothing: any page can send
     * it.
     */
    const limited = <R>(answer: Effect.Effect<HttpServerResponse.HttpServerResponse, SignInFailed | Unavailable, R>) =>
      Effect.gen(function* () {
        const address = yield* clientAddress
        return yield* Effect.tapErrorTag(answer, "SignInFailed", ({ reason }) =>
          reason === "state" ? Effect.void : failures.take(address),
        )
      })

    /** Answers with a page why nobody was signed in. */
    const orPage = <R>(
      answer: Effect.Effect<HttpServerResponse.HttpServerResponse, SignInFailed | Unavailable | TooManyRequests, R>,
    ) =>
      answer.pipe(
        Effect.catchTags({
          SignInFailed: ({ detail, reason }) =>
            Effect.as(Effect.logWarning(`Nobody was signed in: ${detail}`), refusal(reason)),
          Unavailable: () => Effect.succeed(refusal("provider")),
          TooManyRequests: ({ retryAfterSeconds }) =>
            Effect.succeed(HttpServerResponse.setHeader(refusal("busy"), "retry-after", `${retryAfterSeconds}`)),
        }),
      )

    const start = Effect.gen(function* () {
      const { headers, query } = yield* request
      const org = query.get("org") ?? ""
      const { secret, url } = yield* people.start(ulid.test(org) ? org : undefined)
      const secure = yield* isBehindTls(headers, baseUrl)
      // Without it, a provider signs the same person in again.
      const asked = query.has("other") ? `${url}&prompt=select_account` : url
      return setCookie(redirect(asked), "sign_in", Redacted.value(secret), { secure, maxAge: signInLifetime })
    })

    const finish = Effect.gen(function* () {
      const { headers, query } = yield* request
      const secure = yield* isBehindTls(headers, baseUrl)
      const [state, code, error, iss] = ["state", "code", "error", "iss"].map((name) => query.get(name))
      const finished = yield* people.finish(
        { state: state!, code: code!, error: error!, iss: iss! },
        readCookie(headers, "sign_in", secure),
      )
      if ("choices" in finished) {
        const links = finished.choices.map(
          ({ name, orgId }) => `<a href="${signInPath}?org=${orgId}">${escaped(name)}</a>`,
        )
        return page(200, "Choose an org", ["You have a role in several orgs. To change, sign in again.", ...links])
      }
      const { session, token } = finished.signedIn
      const maxAge = DateTime.distance(session.createdAt, session.expiresAt)
      const signedIn = setCookie(redirect("/console"), "session", Redacted.value(token), { secure, maxAge })
      return setCookie(signedIn, "sign_in", "", { secure, maxAge: Duration.zero })
    })

    const logOut = Effect.gen(function* () {
      const body = yield* Effect.orDie(Effect.flatMap(HttpServerRequest.HttpServerRequest, ({ text }) => text))
      const token = new URLSearchParams(body).get("logout_token") ?? ""
      yield* people.logOut(Redacted.make(token))
      return HttpServerResponse.empty({ status: 200 })
    }).pipe(
      Effect.catchTag("Unauthorized", ({ error }) =>
        Effect.succeed(HttpServerResponse.jsonUnsafe({ error, code: "invalid_request" }, { status: 400 })),
      ),
    )

    yield* router.add("GET", signInPath, orPage(start))
    yield* router.add("GET", callbackPath, orPage(limited(finish)))
    yield* router.add("POST", logoutPath, logOut)
  }),
)
