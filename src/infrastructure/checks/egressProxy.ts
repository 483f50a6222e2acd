import { Duration, Effect } from "effect"
import type { Opening } from "../net/connector.ts"
import type { EgressProxy } from "../net/EgressProxy.ts"
import { proxiedConnection, ProxyRefusal } from "../net/proxiedConnection.ts"
import { type Check, fail, ok } from "./Check.ts"

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
    proxiedConnection(proxy)(nobody, opening, (error) => {
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
