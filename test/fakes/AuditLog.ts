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
          const rows = [...audit.values()].filter((entry) => entry.orgId === orgId).map(({ row }) => row)
          // The log of a deleted org stays.
          if (rows.length === 0 && !orgs.has(orgId)) return Effect.fail(orgNotFound())
          return Effect.succeed(pageOf(rows, (row) => row.id, page, -1))
        }),
    }),
  ),
)
