import { Effect, Redacted } from "effect"
import { Command } from "effect/cli"
import { askAt } from "./call.ts"
import { type Connection, connection, kindOf } from "./connection.ts"
import { plain, print } from "./output.ts"

/** Asks the service whose credential this is. Fails if the service refuses it. */
export const identify = Effect.fnUntraced(function* (at: Connection) {
  const { token } = at
  if (token !== undefined && kindOf(token) === "key") {
    const { keyId, orgId, projectId } = (yield* askAt(at, (gatehouse) =>
      gatehouse.keys.validate({ payload: { key: Redacted.value(token) } }),
    )).answer
    const owner = projectId === "" ? `the org ${orgId}` : `the project ${projectId} of the org ${orgId}`
    return { words: `a key of ${owner}`, facts: { kind: "key", keyId, orgId, projectId } }
  }
  // Only the administrator has such a token; without one, only open mode answers.
  yield* askAt(at, (gatehouse) => gatehouse.orgs.list({ query: { limit: 1 } }))
  return token === undefined
    ? { words: "open mode, without a credential", facts: { kind: "anonymous" } }
    : { words: "the administrator", facts: { kind: "administrator" } }
})

/** Shows the server and whose credential is used. */
export const whoami = Command.make(
  "whoami",
  {},
  Effect.fnUntraced(function* () {
    const at = yield* connection
    const { facts, words } = yield* identify(at)
    yield* print(JSON.stringify({ url: at.baseUrl, ...facts }), {
      out: `${words} at ${plain(at.baseUrl)}`,
      note: at.token === undefined ? undefined : `The credential is ${at.source}.`,
    })
  }),
).pipe(Command.withDescription("Show which server and whose credential the commands use"))
