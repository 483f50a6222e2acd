import { Effect } from "effect"
import { makeOidcProvider, type OidcProvider } from "./oidc.ts"
import { makeReceiver, type Receiver } from "./receiver.ts"

/** The environment of a GitHub Actions job. */
export interface Runner {
  readonly provider: OidcProvider
  /** Its token endpoint; by default it answers with `{ value }`, a token of a push to main. */
  readonly endpoint: Receiver
  /** The variables of a job with `id-token: write`. */
  readonly environment: Readonly<Record<string, string>>
  /** The endpoint's credential and its token: neither may be printed. */
  readonly secrets: ReadonlyArray<string>
}

/** A stand-in for GitHub and its runner, with tokens for `audience`. */
export const makeRunner = Effect.fnUntraced(function* (audience: string) {
  const provider = yield* makeOidcProvider(audience)
  const endpoint = yield* makeReceiver()
  const token = yield* provider.sign()
  endpoint.behave({
    status: 200,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ value: token }),
  })
  const credential = "credential-of-the-runner"
  return {
    provider,
    endpoint,
    environment: {
      GITHUB_ACTIONS: "true",
      ACTIONS_ID_TOKEN_REQUEST_URL: `${endpoint.url}/token?api-version=2.0`,
      ACTIONS_ID_TOKEN_REQUEST_TOKEN: credential,
    },
    secrets: [credential, token],
  } satisfies Runner
})
