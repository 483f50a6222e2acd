import { Effect, Layer, Redacted } from "effect"
import { decodeJwt } from "jose"
import { type CiProvider, CiTokenVerifier, runOf } from "../../domain/deployments/CiRun.ts"
import * as OidcKeys from "./OidcKeys.ts"
import { checkFormat, reject, verifyToken } from "./verifyToken.ts"

/**
 * The provider of a token, by its exact issuer, which is not verified yet. When there is one provider, its checks say
 * what is wrong with a token of another issuer.
 */
const providerOf = <P extends CiProvider>(token: string, providers: ReadonlyArray<P>): P | undefined => {
  try {
    const { iss } = decodeJwt(token)
    return providers.find(({ issuer }) => issuer === iss) ?? (providers.length === 1 ? providers[0] : undefined)
  } catch {
    return providers.length === 1 ? providers[0] : undefined
  }
}

/**
 * Verifies OIDC tokens of CI providers with their published keys. A token belongs to the provider with its exact
 * issuer, and only the keys, audiences and algorithms of that provider count. `verify` takes a compact JWT and returns
 * its run. It fails with `Unauthorized` if the token is invalid, and with `Unavailable` if the token's key is unknown
 * and the provider is down. Source: OpenID Connect Discovery 1.0.
 */
export const layer = (trusted: ReadonlyArray<CiProvider>) =>
  Layer.effect(
    CiTokenVerifier,
    Effect.gen(function* () {
      const providers = yield* Effect.forEach(trusted, (provider) =>
        Effect.map(
          OidcKeys.make(
            provider.jwks === undefined ? { issuer: provider.issuer } : { jwks: provider.jwks },
            provider.algorithms,
          ),
          (keys) => ({ ...provider, keys }),
        ),
      )
      return CiTokenVerifier.of({
        verify: Effect.fn("Oidc.verify")(function* (redacted) {
          const token = Redacted.value(redacted)
          yield* checkFormat(token)
          const provider = providerOf(token, providers)
          if (provider === undefined)
            return yield* reject("The token's issuer (iss) is not a configured CI provider. Add it to OIDC_PROVIDERS.")
          return yield* Effect.fromResult(runOf(provider, yield* verifyToken(token, provider)))
        }),
      })
    }),
  )
