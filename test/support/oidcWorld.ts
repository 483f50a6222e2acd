import { NodeHttpClient } from "@effect/platform-node"
import { Context, Effect, Layer, Redacted } from "effect"
import type { HttpClient } from "effect/http"
import { TestClock } from "effect/testing"
import { type CiProvider, CiTokenVerifier } from "#src/domain/deployments/CiRun.ts"
import { readGitHub } from "#src/domain/deployments/providers/knownProviders.ts"
import * as Oidc from "#src/infrastructure/oidc/CiTokenVerifier.ts"
import { makeOidcProvider } from "./oidc.ts"

/** The time at which these tests start, in milliseconds. */
export const startOfTest = Date.UTC(2026, 10, 20, 17)

/** A provider and a verifier that trusts it, under a test clock; `options` replace the verifier's configuration. */
export const oidcWorld = Effect.fnUntraced(function* (
  options: Partial<CiProvider> = {},
  client: Layer.Layer<HttpClient.HttpClient> = NodeHttpClient.layerUndici,
) {
  yield* TestClock.setTime(startOfTest)
  const provider = yield* makeOidcProvider()
  const issuer = options.issuer ?? provider.issuer
  const layer = Oidc.layer([
    {
      provider: "github",
      issuer,
      audiences: [provider.audience],
      algorithms: ["RS256"],
      jwks: `${issuer.replace(/\/+$/, "")}/.well-known/jwks`,
      read: readGitHub,
      pinFault: () => undefined,
      ...options,
    },
  ])
  const tokens = Context.get(yield* Layer.build(Layer.provide(layer, client)), CiTokenVerifier)
  const verify = (token: string) => tokens.verify(Redacted.make(token))
  return {
    provider,
    verify,
    /** Signs a token with `provider.sign`, and verifies it. */
    verifySigned: (...args: Parameters<typeof provider.sign>) => Effect.flatMap(provider.sign(...args), verify),
  }
})
export type OidcWorld = Effect.Success<ReturnType<typeof oidcWorld>>
