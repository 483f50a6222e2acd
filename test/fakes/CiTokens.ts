import { Effect, Layer, Redacted, Result } from "effect"
import { CiTokens, claimsFrom } from "#src/domain/deployments/CiToken.ts"
import { Unauthorized } from "#src/domain/Errors.ts"

/** A token that contains its claims as JSON. */
export const tokenOf = (claims: Record<string, unknown>) => Redacted.make(JSON.stringify(claims))

/** Accepts every token that is JSON. */
export const layer = Layer.succeed(
  CiTokens,
  CiTokens.of({
    verify: (token) =>
      Effect.fromResult(
        Result.flatMap(
          Result.try({
            try: (): unknown => JSON.parse(Redacted.value(token)),
            catch: () => new Unauthorized({ error: "The token is not a JWT." }),
          }),
          claimsFrom,
        ),
      ),
  }),
)
