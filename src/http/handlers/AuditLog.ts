import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { AuditLog } from "../../domain/AuditLog.ts"
import { Api } from "../Api.ts"
import { madeOf } from "../lean.ts"

export const layer = HttpApiBuilder.group(Api, "audit", (handlers) =>
  Effect.map(AuditLog, (audit) =>
    handlers.handleAll({
      list: ({ params, query }) => audit.list(params.orgId, query),
    }),
  ),
).pipe(madeOf(AuditLog))
