import { Clock, Duration, Effect, Schema } from "effect"
import { HttpClient } from "effect/http"
import { counted } from "../../domain/plural.ts"
import type { CiProvider } from "../../domain/deployments/CiRun.ts"
import type { EgressProxy } from "../net/EgressProxy.ts"
import { transportFault } from "../net/transportFault.ts"
import { type Opening, ProxyRefusal, throughProxy } from "../net/connector.ts"
import { keysUrl } from "../oidc/OidcKeys.ts"
import { type Check, clockCheck, fail, ok, warn } from "./Check.ts"

const KeySet = Schema.fromJsonString(Schema.Struct({ keys: Schema.Array(Schema.Unknown) }))

const remedy =
  "let this machine reach the issuer over https, or set GITHUB_OIDC_ISSUER or OIDC_PROVIDERS; CI runs cannot register until then"

interface IssuerUse {
  /** Whether the configuration says that the issuer is used; if so, a problem is a failure, not a warning. */
  readonly needed: boolean
  /** Default: that of an issuer of CI tokens. */
  readonly remedy?: string
}

const problem = (use: IssuerUse, message: string) => (use.needed ? fail : warn)("issuer", message, use.remedy ?? remedy)

/** Checks that this machine can fetch the signing keys of an issuer, and compares its clock with the issuer's. */
export const checkIssuer: (
  provider: Pick<CiProvider, "issuer" | "jwks">,
  use: IssuerUse,
) => Effect.Effect<ReadonlyArray<Check>, never, HttpClient.HttpClient> = Effect.fnUntraced(
  function* ({ issuer, jwks }, use) {
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
      return [problem(use, `${issuer} answers the request for its keys with status ${response.status}`), ...clock]
    }
    const { keys } = yield* Schema.decodeEffect(KeySet)(yield* response.text)
    return [ok("issuer", `${issuer} publishes ${counted(keys.length, "key")}`), ...clock]
  },
  Effect.timeout("10 seconds"),
  (checks, { issuer }, use) =>
    Effect.catch(checks, (error) =>
      Effect.succeed([
        problem(
          use,
          error._tag === "SchemaError"
            ? `${issuer} does not publish a key set`
            : error._tag === "KeysUnavailable"
              ? `${issuer} does not publish its keys (${error.reason})`
              : `${issuer} does not answer (${transportFault(error)})`,
        ),
      ]),
    ),
)

/** A host that does not exist (RFC 6761), so that the check reaches nobody behind the proxy. */
const nobody = { hostname: "gatehouse.invalid", port: 443 }

const deadline = Duration.seconds(10)

const noConnect = { message: "does not take CONNECT", remedy: "set EGRESS_PROXY to a forward proxy that takes CONNECT" }

/** What is wrong when the proxy refuses to connect to nobody, by status. It may refuse with any other. */
const faults: Readonly<Record<number, typeof noConnect>> = {
  405: noConnect,
  407: {
    message: "refuses the credentials",
    remedy: "correct the user and password in EGRESS_PROXY; percent-encode characters such as @ and /",
  },
  501: noConnect,
}

/** Opens and closes a connection to nobody; `null` if the proxy opens it. */
const tryProxy = (proxy: EgressProxy) =>
  Effect.callback<Error | null>((resume) => {
    const opening: Opening = { isAborted: false, active: undefined }
    const close = () => opening.active?.destroy()
    throughProxy(proxy)(nobody, opening, (error) => {
      close()
      resume(Effect.succeed(error))
    })
    return Effect.sync(close)
  })

const unreachable = (message: string) =>
  fail(
    "egress proxy",
    message,
    "start the proxy, or correct EGRESS_PROXY; webhooks and documents do not leave until then",
  )

/** Checks that the proxy answers CONNECT, and takes the credentials. */
export const checkEgressProxy = (proxy: EgressProxy): Effect.Effect<Check> =>
  tryProxy(proxy).pipe(
    Effect.map((error) => {
      const fault = error instanceof ProxyRefusal ? faults[error.status] : undefined
      if (fault !== undefined) return fail("egress proxy", `${proxy.origin} ${fault.message}`, fault.remedy)
      return error === null || error instanceof ProxyRefusal
        ? ok("egress proxy", `${proxy.origin} answers`)
        : unreachable(`${proxy.origin} does not answer: ${error.message}`)
    }),
    Effect.timeoutOrElse({
      duration: deadline,
      orElse: () => Effect.succeed(unreachable(`${proxy.origin} does not answer within ${Duration.format(deadline)}`)),
    }),
  )
