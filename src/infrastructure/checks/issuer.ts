import { Clock, Effect, Schema } from "effect"
import { HttpClient } from "effect/http"
import { transportFault } from "../net/transportFault.ts"
import { type Check, fail, ok, warn } from "./Check.ts"
import { clockCheck } from "./clock.ts"

const KeySet = Schema.fromJsonString(Schema.Struct({ keys: Schema.Array(Schema.Unknown) }))

const remedy = "let this machine reach it over https, or set GITHUB_OIDC_ISSUER; until then CI runs cannot register"

/** How grave a fault of the issuer is. */
const faultOf = (needed: boolean) => (needed ? fail : warn)

/**
 * Whether the issuer of CI tokens publishes its keys to this machine, and whether its clock and ours agree.
 *
 * @param needed whether CI is known to register here: without its issuer, the service fails it then
 */
export const checkIssuer: (
  issuer: string,
  options: { readonly needed: boolean },
) => Effect.Effect<ReadonlyArray<Check>, never, HttpClient.HttpClient> = Effect.fnUntraced(
  function* (issuer: string, { needed }) {
    const asked = yield* Clock.currentTimeMillis
    const response = yield* HttpClient.get(`${issuer.replace(/\/+$/, "")}/.well-known/jwks`)
    const answered = yield* Clock.currentTimeMillis
    const date = Date.parse(response.headers["date"] ?? "")
    // The header has whole seconds.
    const clock = Number.isNaN(date)
      ? []
      : [clockCheck("the issuer", (asked + answered) / 2 - date, 1000 + (answered - asked) / 2)]
    if (response.status !== 200) {
      return [
        faultOf(needed)("issuer", `${issuer} answers for its keys with status ${response.status}`, remedy),
        ...clock,
      ]
    }
    const { keys } = yield* Schema.decodeEffect(KeySet)(yield* response.text)
    return [ok("issuer", `${issuer} publishes ${keys.length} keys`), ...clock]
  },
  Effect.timeout("10 seconds"),
  (checks, issuer, { needed }) =>
    Effect.catch(checks, (error) =>
      Effect.succeed([
        faultOf(needed)(
          "issuer",
          error._tag === "SchemaError"
            ? `${issuer} publishes no key set`
            : `${issuer} does not answer (${transportFault(error)})`,
          remedy,
        ),
      ]),
    ),
)
