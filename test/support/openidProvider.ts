import { Effect, type Scope } from "effect"
import { createServer, type RequestListener } from "node:http"
import { ecKey, rsaKey } from "./oidc.ts"
import { clientId, clientSecret, listening } from "./identityProvider.ts"

/** What the tests use of the package `oidc-provider`, which has no types of its own. */
type Provider = new (
  issuer: string,
  configuration: object,
) => {
  readonly callback: () => RequestListener
  readonly on: (event: string, listener: (...args: ReadonlyArray<unknown>) => void) => void
}

const packageName: string = "oidc-provider"

/** A person of the provider, by the name that they sign in with. */
const people: Readonly<Record<string, object>> = {
  jo: { name: "Jo Doe", email: "jo@example.com", email_verified: true, groups: ["platform"] },
  vi: { name: "Vi Ewer", email: "vi@example.com", email_verified: true, groups: ["support"] },
  ex: { name: "Ex Ternal", email: "ex@example.com", email_verified: true, groups: ["others"] },
}

interface Addresses {
  readonly redirectUri: string
  readonly logoutUri: string
}

/** A real provider of OpenID Connect on a loopback port, for one client. */
export const startOpenidProvider = ({
  logoutUri,
  redirectUri,
}: Addresses): Effect.Effect<
  { readonly issuer: string; readonly faults: ReadonlyArray<unknown> },
  never,
  Scope.Scope
> =>
  Effect.gen(function* () {
    const { default: Provider } = (yield* Effect.promise(() => import(packageName))) as { readonly default: Provider }
    const server = createServer()
    const issuer = yield* listening(server)
    const [key, other] = [rsaKey("of-the-provider"), ecKey("another")]
    const privateJwk = ({ jwk, privateKey }: typeof key) => ({ ...jwk, ...privateKey.export({ format: "jwk" }) })
    const provider = new Provider(issuer, {
      clients: [
        {
          client_id: clientId,
          client_secret: clientSecret,
          redirect_uris: [redirectUri],
          backchannel_logout_uri: logoutUri,
          backchannel_logout_session_required: true,
        },
      ],
      jwks: { keys: [privateJwk(key), privateJwk(other)] },
      cookies: { keys: ["of the tests"] },
      scopes: ["openid", "profile", "email", "groups"],
      claims: { profile: ["name"], email: ["email", "email_verified"], groups: ["groups"] },
      // The claims of the scopes are in the id token.
      conformIdTokenClaims: false,
      findAccount: (_: unknown, id: string) => ({
        accountId: id,
        claims: () => ({ sub: id, ...people[id] }),
      }),
      // Its own refuses to send logout tokens to this machine.
      fetch: (url: string, options: RequestInit) =>
        globalThis.fetch(url, { ...options, dispatcher: undefined } as unknown as RequestInit),
      ttl: { Interaction: 600, Session: 600, Grant: 600, AccessToken: 600, IdToken: 600, AuthorizationCode: 60 },
      features: { devInteractions: { enabled: true }, backchannelLogout: { enabled: true } },
    })
    const faults: Array<unknown> = []
    provider.on("server_error", (_, fault) => faults.push(fault))
    provider.on("backchannel.error", (_, fault) => faults.push(fault))
    server.on("request", provider.callback())
    return { issuer, faults }
  })
