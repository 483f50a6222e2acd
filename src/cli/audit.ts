import { Effect } from "effect"
import { Command } from "effect/cli"
import { callPages } from "./call.ts"
import { page } from "./flags.ts"
import { orgFlag, resolveOrg } from "./orgs.ts"
import { table } from "./output.ts"

const list = Command.make(
  "list",
  { org: orgFlag, ...page },
  Effect.fnUntraced(function* ({ org, ...page }) {
    const orgId = yield* resolveOrg(org)
    yield* callPages(
      page,
      (gatehouse, query) => gatehouse.audit.list({ params: { orgId }, query }),
      ({ entries, nextCursor }) => ({
        table: table(
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
        next: nextCursor,
      }),
    )
  }),
).pipe(Command.withDescription("List the changes in an org, newest first"))

/** Reads the audit log. */
export const audit = Command.make("audit").pipe(
  Command.withDescription("The audit log: who changed what in an org"),
  Command.withSubcommands([list]),
)
