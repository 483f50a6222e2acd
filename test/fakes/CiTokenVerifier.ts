import { Effect, Layer, Redacted, Result } from "effect"
import { CiTokenVerifier, runOf } from "#src/domain/deployments/CiRun.ts"
import { presetOf, readGitHub } from "#src/domain/deployments/providers/knownProviders.ts"
import { Unauthorized } from "#src/domain/Errors.ts"

/** A token that contains its claims as JSON. */
export const tokenOf = (claims: Record<string, unknown>) => Redacted.make(JSON.stringify(claims))

/** GitHub, as the tests of services know it. */
export const github = {
  provider: "github",
  issuer: "https://issuer.example",
  audiences: ["aud"],
  algorithms: ["RS256"],
  jwks: undefined,
  read: readGitHub,
  pinFault: presetOf("github").pinFault,
}

/** Accepts every token that is JSON. */
export const layer = Layer.succeed(
  CiTokenVerifier,
  CiTokenVerifier.of({
    verify: (token) =>
      Effect.fromResult(
        Result.flatMap(
          Result.try({
            try: (): unknown => JSON.parse(Redacted.value(token)),
            catch: () => new Unauthorized({ error: "The token is not a JWT." }),
          }),
          (payload) => runOf(github, payload),
        ),
      ),
  }),
)
