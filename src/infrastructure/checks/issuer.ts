import { Clock, Effect, Schema } from "effect"
import { HttpClient } from "effect/http"
import type { CiProvider } from "../../domain/deployments/CiProvider.ts"
import { transportFault } from "../net/transportFault.ts"
import { keysUrl } from "../oidc/OidcKeys.ts"
import { type Check, fail, ok, warn } from "./Check.ts"
import { clockCheck } from "./clock.ts"

const KeySet = Schema.fromJsonString(Schema.Struct({ keys: Schema.Array(Schema.Unknown) }))

const remedy =
  "let this machine reach the issuer over https, or set GITHUB_OIDC_ISSUER or OIDC_PROVIDERS; CI runs cannot register until then"

const problem = (needed: boolean, message: string) => (needed ? fail : warn)("issuer", message, remedy)

/**
 * Checks that this machine can fetch the signing keys of CI tokens, and compares its clock with the issuer's.
 *
 * @param needed whether the configuration says that CI registers here; if so, a problem is a failure, not a warning
 */
export const checkIssuer: (
  provider: Pick<CiProvider, "issuer" | "jwks">,
  options: { readonly needed: boolean },
) => Effect.Effect<ReadonlyArray<Check>, never, HttpClient.HttpClient> = Effect.fnUntraced(
  function* ({ issuer, jwks }, { needed }) {
    const client = yield* HttpClient.HttpClient
    const url = yield* keysUrl(client, jwks === undefined ? { issuer } : { jwks })
    const sentAt = yield* Clock.currentTimeMillis
    const response = yield* client.get(url)
    const answeredAt = yield* Clock.currentTimeMillis
    const date = Date.parse(response.headers["date"] ?? "")
    // The date header has a resolution of one second.
    const clock = Number.isNaN(date)
      ? []
      : [clockCheck("the issuer", (sentAt + answeredAt) / 2 - date, 1000 + (answeredAt - sentAt) / 2)]
    if (response.status !== 200) {
      return [problem(needed, `${issuer} answers the request for its keys with status ${response.status}`), ...clock]
    }
    const { keys } = yield* Schema.decodeEffect(KeySet)(yield* response.text)
    return [ok("issuer", `${issuer} publishes ${keys.length} keys`), ...clock]
  },
  Effect.timeout("10 seconds"),
  (checks, { issuer }, { needed }) =>
    Effect.catch(checks, (error) =>
      Effect.succeed([
        problem(
          needed,
          error._tag === "SchemaError"
            ? `${issuer} does not publish a key set`
            : error._tag === "KeysUnavailable"
              ? `${issuer} does not publish its keys (${error.reason})`
              : `${issuer} does not answer (${transportFault(error)})`,
        ),
      ]),
    ),
)
