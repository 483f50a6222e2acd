import { Effect } from "effect"
import { group } from "./group.ts"
import { AuditLog } from "../../domain/audit/AuditLog.ts"
import { Api } from "../api/Api.ts"

export const layer = group(Api, "audit", (handlers) =>
  Effect.map(AuditLog, (audit) =>
    handlers.handleAll({
      list: ({ params, query }) => audit.list(params.orgId, query),
      export: ({ params, query }) => audit.export(params.orgId, query),
    }),
  ),
)
