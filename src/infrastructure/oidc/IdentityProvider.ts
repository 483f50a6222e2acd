import { DateTime, Effect, Layer, Redacted, Schema } from "effect"
import { HttpClient, HttpClientRequest } from "effect/http"
import type { JWTPayload } from "jose"
import { hash } from "node:crypto"
import { IdentityProvider, SignInFailed } from "../../domain/sessions/People.ts"
import { clientCredentials } from "../net/clientCredentials.ts"
import * as PublishedKeys from "../net/PublishedKeys.ts"
import * as OidcKeys from "./OidcKeys.ts"
import { maxClockSkewSeconds, reject, verifyToken } from "./verifyToken.ts"

/** How the service is known at the provider. */
interface ProviderSettings {
  readonly issuer: string
  readonly clientId: string
  readonly clientSecret: Redacted.Redacted<string>
  /** Where the provider sends the browser back; it is registered there. */
  readonly redirectUri: string
}

const names = Schema.optionalKey(Schema.Array(Schema.String))
/** The members of the discovery document that a sign-in needs. */
const Discovery = Schema.Struct({
  issuer: Schema.String,
  jwks_uri: Schema.String,
  authorization_endpoint: Schema.String,
  token_endpoint: Schema.String,
  scopes_supported: names,
  token_endpoint_auth_methods_supported: names,
})
type Discovery = typeof Discovery.Type

const decodeTokens = Schema.decodeEffect(Schema.fromJsonString(Schema.Struct({ id_token: Schema.String })))

/** The event of a logout token. Source: OpenID Connect Back-Channel Logout 1.0, section 2.4. */
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

const failed = (detail: string) => new SignInFailed({ reason: "provider", detail })

/** The longest ids of people and sessions. Source: OpenID Connect Core 1.0, section 2. */
const isId = (value: unknown): value is string => typeof value === "string" && /^[\x20-\x7e]{1,255}$/.test(value)

/** A token for several audiences, or with a party, must be for this client. Source: Core 1.0, section 3.1.3.7. */
const isForClient = ({ aud, azp }: JWTPayload, clientId: string) =>
  azp === undefined ? !Array.isArray(aud) || aud.length === 1 : azp === clientId

/**
 * An OpenID Connect provider: authorization code flow with PKCE, and back-channel logout. The keys and the checks of
 * tokens are those of CI tokens; the discovery document is kept like keys.
 */
export const layer = ({ clientId, clientSecret, issuer, redirectUri }: ProviderSettings) =>
  Layer.effect(
    IdentityProvider,
    Effect.gen(function* () {
      const client = yield* HttpClient.HttpClient
      const algorithms = [...OidcKeys.keyTypes.keys()]
      const keys = yield* OidcKeys.make({ issuer }, algorithms)
      const trusted = { issuer, audiences: [clientId], algorithms, keys }
      const documents = yield* PublishedKeys.make<Discovery>({
        address: issuer,
        what: "settings of CONSOLE_OIDC_ISSUER",
        read: (client) =>
          Effect.map(OidcKeys.discover(client, issuer, Discovery), (document) => new Map([["", document]])),
      })
      const document = documents.find("").pipe(
        Effect.flatMap((found) => Effect.fromOption(found)),
        Effect.mapError(() => failed("the settings of the issuer cannot be read")),
      )

      const fetchIdToken = Effect.fnUntraced(function* (code: Redacted.Redacted<string>, verifier: string) {
        const { token_endpoint_auth_methods_supported: methods, token_endpoint: url } = yield* document
        const secret = Redacted.value(clientSecret)
        const isBasic = methods?.includes("client_secret_basic") ?? true
        const form = {
          grant_type: "authorization_code",
          code: Redacted.value(code),
          redirect_uri: redirectUri,
          code_verifier: verifier,
          ...(isBasic ? {} : { client_id: clientId, client_secret: secret }),
        }
        const request = HttpClientRequest.post(url, { acceptJson: true }).pipe(HttpClientRequest.bodyUrlParams(form))
        const { id_token } = yield* PublishedKeys.textOf(
          client,
          isBasic
            ? HttpClientRequest.setHeader(request, "authorization", clientCredentials(clientId, secret))
            : request,
        ).pipe(
          Effect.flatMap(decodeTokens),
          Effect.catchTag("SchemaError", () =>
            Effect.fail(new PublishedKeys.KeysUnavailable({ reason: "what the token endpoint says has no id_token" })),
          ),
          PublishedKeys.bounded,
          Effect.catchCause((cause) => Effect.fail(failed(`no id token: ${PublishedKeys.reasonOf(cause)}`))),
        )
        return id_token
      })

      return IdentityProvider.of({
        authorizationUrl: Effect.fnUntraced(function* ({ nonce, state, verifier }) {
          const { authorization_endpoint, scopes_supported = [] } = yield* document
          const url = new URL(authorization_endpoint)
          const parameters = {
            response_type: "code",
            client_id: clientId,
            redirect_uri: redirectUri,
            // A provider refuses a scope that it does not know.
            scope: ["openid", "profile", "email", ...(scopes_supported.includes("groups") ? ["groups"] : [])].join(" "),
            state,
            nonce,
            code_challenge: hash("sha256", verifier, "base64url"),
            code_challenge_method: "S256",
          }
          for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value)
          return url.href
        }),

        exchange: Effect.fn("Oidc.exchange")(function* ({ code, nonce, verifier }) {
          const token = yield* fetchIdToken(code, verifier)
          const claims = yield* Effect.mapError(verifyToken(token, trusted), ({ error }) => failed(error))
          const { exp, sid, sub } = claims
          if (claims["nonce"] !== nonce) return yield* failed("the id token is of another sign-in (nonce)")
          if (!isForClient(claims, clientId)) return yield* failed("the id token is for another client (azp)")
          if (!isId(sub)) return yield* failed("the id token names no subject (sub)")
          const expiresAt = DateTime.makeUnsafe(exp! * 1000)
          return { subject: sub, sid: isId(sid) ? sid : undefined, expiresAt, claims }
        }),

        verifyLogout: Effect.fn("Oidc.verifyLogout")(function* (redacted) {
          const claims = yield* verifyToken(Redacted.value(redacted), trusted, ["JWT", "LOGOUT+JWT"])
          const { events, iat, jti, sid, sub } = claims
          const event =
            typeof events === "object" && events !== null && (events as Record<string, unknown>)[logoutEvent]
          if (typeof event !== "object" || event === null) return yield* reject("The token's events have no logout.")
          if (Object.hasOwn(claims, "nonce")) return yield* reject("A logout token has no nonce.")
          if (iat === undefined) return yield* reject(`The token's claim "iat" is missing.`)
          if (!isId(jti)) return yield* reject(`The token's claim "jti" is missing.`)
          const isNamed =
            [sub, sid].some((id) => id !== undefined) && [sub, sid].every((id) => id === undefined || isId(id))
          if (!isNamed) return yield* reject("The token must name whom it signs out, by sub or sid.")
          // One that is sent again later ends no session that has begun since.
          const before = DateTime.makeUnsafe((iat + maxClockSkewSeconds) * 1000)
          return { subject: sub, sid: sid as string | undefined, before }
        }),
      })
    }),
  )
