import { Console, Effect, Schema, Stream } from "effect"
import { Command } from "effect/cli"
import { AuditEntry, auditFilter } from "../domain/audit/AuditEntry.ts"
import { ask, callPages } from "./call.ts"
import { given, page, payloadFlags } from "./flags.ts"
import { orgFlag, resolveOrg } from "./orgsCommand.ts"
import { CommandFailed, table } from "./output.ts"

const filter = payloadFlags(auditFilter)

const list = Command.make(
  "list",
  { org: orgFlag, ...page, ...filter },
  Effect.fnUntraced(function* ({ org, person, since, until, ...page }) {
    const asked = given({ person, since, until })
    const orgId = yield* resolveOrg(org)
    yield* callPages(
      page,
      (gatehouse, query) => gatehouse.audit.list({ params: { orgId }, query: { ...query, ...asked } }),
      ({ entries, nextCursor }) => ({
        table: table(
          ["AT", "ACTOR", "ACTION", "TARGET", "DETAILS", "REQUEST"],
          entries.map(({ action, actor, at, details, person, requestId, target }) => [
            at,
            person?.name ?? person?.email ?? actor,
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

const encode = Schema.encodeSync(Schema.fromJsonString(AuditEntry))

const exportAll = Command.make(
  "export",
  { org: orgFlag, ...filter },
  Effect.fnUntraced(function* ({ org, ...filter }) {
    const orgId = yield* resolveOrg(org)
    const { body } = yield* ask((gatehouse) => gatehouse.audit.export({ params: { orgId }, query: given(filter) }))
    yield* Stream.runForEach(body, (entry) => Console.log(encode(entry))).pipe(
      Effect.mapError(() => new CommandFailed({ message: "The export was cut off: what is printed is not complete" })),
    )
  }),
).pipe(Command.withDescription("Print all changes in an org, newest first, one JSON object in each line"))

/** Reads the audit log. */
export const audit = Command.make("audit").pipe(
  Command.withDescription("The audit log: who changed what in an org"),
  Command.withSubcommands([list, exportAll]),
)
