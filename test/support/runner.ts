import { Effect } from "effect"
import { makeOidcProvider, type OidcProvider } from "./oidc.ts"
import { makeReceiver, type Receiver } from "./receiver.ts"

/** What a job of GitHub Actions runs in. */
export interface Runner {
  readonly provider: OidcProvider
  /** Its token endpoint; answers with `{ value }`, a token of a push to main, until told otherwise. */
  readonly endpoint: Receiver
  /** The variables that a job with `id-token: write` has. */
  readonly environment: Readonly<Record<string, string>>
  /** The credential for the endpoint and the token that it gives: neither may be printed. */
  readonly secrets: ReadonlyArray<string>
}

/** A stand-in for GitHub and its runner, for tokens made out to `audience`. */
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
