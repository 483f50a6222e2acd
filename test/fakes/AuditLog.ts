import { Effect, Layer } from "effect"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { orgNotFound } from "#src/domain/Principal.ts"
import { pageOf, World } from "./World.ts"

/** The audit log in memory. */
export const layer = Layer.effect(
  AuditRepository,
  Effect.map(World, ({ audit, orgs }) =>
    AuditRepository.of({
      list: (orgId, page) =>
        Effect.suspend(() => {
          if (!orgs.has(orgId)) return Effect.fail(orgNotFound())
          const rows = [...audit.values()].filter((entry) => entry.orgId === orgId).map(({ row }) => row)
          return Effect.succeed(pageOf(rows, (row) => row.id, page, -1))
        }),
    }),
  ),
)
