import { Effect } from "effect"
import { createServer, type RequestListener } from "node:http"
import type { AddressInfo } from "node:net"

export type Json = Record<string, unknown>

/** A receiver of webhooks on this machine, until the scope closes. */
export const makeReceiver = (answer: RequestListener) =>
  Effect.acquireRelease(
    Effect.callback<{ readonly url: string; readonly close: () => void }>((resume) => {
      const server = createServer(answer)
      const close = () => void server.close().closeAllConnections()
      server.listen(0, "127.0.0.1", () =>
        resume(Effect.succeed({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close })),
      )
    }),
    ({ close }) => Effect.sync(close),
  )

/** Calls operations of a service in open mode, for an org. */
export const caller = (url: string) => (orgId: string | undefined, method: string, path: string, json?: Json) =>
  Effect.promise(async () => {
    const answer = await globalThis.fetch(url + path, {
      method,
      headers: { "content-type": "application/json", ...(orgId === undefined ? {} : { "x-org-id": orgId }) },
      ...(json === undefined ? {} : { body: JSON.stringify(json) }),
    })
    const body = (await answer.json()) as Record<string, string>
    if (!answer.ok) throw new Error(`${method} ${path}: ${JSON.stringify(body)}`)
    return body
  })
export type Call = ReturnType<typeof caller>

/** Waits until a check is true. */
export const until = (check: Effect.Effect<boolean>): Effect.Effect<void> =>
  Effect.flatMap(check, (isDone) => (isDone ? Effect.void : Effect.andThen(Effect.sleep("100 millis"), until(check))))
