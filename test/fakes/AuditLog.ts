import { DateTime, Effect, Layer } from "effect"
import type { AuditEntry, AuditFilter } from "#src/domain/audit/AuditEntry.ts"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { orgNotFound } from "#src/domain/Principal.ts"
import { pageOf, World } from "./World.ts"

const matches = ({ at, person: by }: AuditEntry, { person, since, until }: AuditFilter) =>
  (person === undefined || by?.subject === person) &&
  (since === undefined || DateTime.isGreaterThanOrEqualTo(at, since)) &&
  (until === undefined || DateTime.isLessThan(at, until))

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
          const matching = rows.filter((row) => matches(row, page))
          return Effect.succeed(pageOf(matching, (row) => row.id, page, -1))
        }),
    }),
  ),
)
