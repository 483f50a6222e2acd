import { Effect } from "effect"
import { Command } from "effect/cli"
import { call } from "./call.ts"
import { given, page } from "./flags.ts"
import { orgFlag, resolveOrg } from "./orgs.ts"
import { more, table } from "./output.ts"

const list = Command.make(
  "list",
  { org: orgFlag, ...page },
  Effect.fnUntraced(function* ({ cursor, limit, org }) {
    const orgId = yield* resolveOrg(org)
    yield* call(
      (gatehouse) => gatehouse.audit.list({ params: { orgId }, query: { limit, ...given({ cursor }) } }),
      ({ entries, nextCursor }) => ({
        out: table(
          ["AT", "ACTOR", "ACTION", "TARGET", "DETAILS", "REQUEST"],
          entries.map(({ action, actor, at, details, requestId, target }) => [
            at,
            actor,
            action,
            target,
            JSON.stringify(details),
            requestId,
          ]),
        ),
        note: more(nextCursor),
      }),
    )
  }),
).pipe(Command.withDescription("List the changes in an org, newest first"))

/** Reads the audit log. */
export const audit = Command.make("audit").pipe(
  Command.withDescription("The audit log: who changed what in an org"),
  Command.withSubcommands([list]),
)
