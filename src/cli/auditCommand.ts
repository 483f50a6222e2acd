import { Console, Effect, Schema, Stream } from "effect"
import { AuditEntry } from "../domain/audit/AuditEntry.ts"
import { ask } from "./callOperation.ts"
import { op } from "./operation.ts"
import { columns, failure, whileRead } from "./output.ts"
import { group } from "./flags.ts"

const encode = Schema.encodeSync(Schema.fromJsonString(AuditEntry))

export const audit = group("audit", "The audit log: who changed what in an org", [
  op("audit.list", {
    about: "List the changes in an org, newest first",
    show: ({ entries }) =>
      columns(entries, {
        AT: "at",
        ACTOR: ({ actor, person }) => person?.name ?? person?.email ?? actor,
        ACTION: "action",
        TARGET: "target",
        DETAILS: "details",
        REQUEST: "requestId",
      }),
  }),
  op("audit.export", {
    run: (_, { orgId, ...query }) =>
      Effect.flatMap(
        ask((gatehouse) => gatehouse.audit.export({ params: { orgId }, query })),
        ({ body }) =>
          Stream.runForEach(body, (entry) => Console.log(encode(entry))).pipe(
            Effect.mapError(() => failure("The export was cut off: what is printed is not complete")),
            whileRead,
          ),
      ),
  }),
])
