import { DateTime, Effect, Layer } from "effect"
import type { NewApiKey } from "#src/domain/keys/ApiKeyRepository.ts"
import { ApiKeyRepository, keyExpired, keyNotFound, keyReplaced } from "#src/domain/keys/ApiKeyRepository.ts"
import type { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import { orgNotFound } from "#src/domain/Principal.ts"
import { projectNotFound } from "#src/domain/projects/Projects.ts"
import { inScope, keepEntry, needRoom, pageOf, type StoredKey, World } from "./World.ts"

/** API keys in memory. */
export const layer = Layer.effect(
  ApiKeyRepository,
  Effect.map(World, (world) => {
    const { keys, orgs, projects } = world
    const insert = ({ hash, ...key }: NewApiKey, orgId: string, projectId: string | null, entry: AuditEntry) =>
      Effect.map(needRoom(world, "keys", orgId), () => {
        if (keys.has(key.id) || [...keys.values()].some((stored) => stored.hash === hash)) {
          throw new Error("The id or the hash is taken")
        }
        keepEntry(world, orgId, entry)
        keys.set(key.id, { row: { ...key, projectId, lastUsedAt: null }, orgId, hash, replacedBy: null })
      })

    return ApiKeyRepository.of({
      insertForProject: (scope, projectId, key, entry) =>
        Effect.gen(function* () {
          const orgId = projects.get(projectId)?.row.orgId
          if (orgId === undefined || !inScope(scope, orgId)) return yield* projectNotFound()
          yield* insert(key, orgId, projectId, entry)
        }),

      insertForOrg: (orgId, key, entry) =>
        Effect.gen(function* () {
          if (!orgs.has(orgId)) return yield* orgNotFound()
          yield* insert(key, orgId, null, entry)
        }),

      remove: (orgId, keyId, entry) =>
        Effect.suspend(() => {
          if (keys.get(keyId)?.orgId !== orgId) return Effect.fail(keyNotFound())
          keepEntry(world, orgId, entry)
          keys.delete(keyId)
          return Effect.void
        }),

      rotate: Effect.fnUntraced(function* (orgId, keyId, replacement, entry) {
        const { id, prefix, hash, now, expiresAt, oldKeyUntil } = replacement
        const old = keys.get(keyId)
        if (old?.orgId !== orgId) return yield* keyNotFound()
        const { name, projectId, rateLimit, expiresAt: oldExpiry } = old.row
        if (old.replacedBy !== null) return yield* keyReplaced()
        if (oldExpiry !== null && DateTime.isLessThanOrEqualTo(oldExpiry, now)) return yield* keyExpired()
        const key = { id, name, prefix, hash, createdAt: now, rateLimit }
        yield* insert({ ...key, expiresAt: expiresAt === undefined ? oldExpiry : expiresAt }, orgId, projectId, {
          ...entry,
          details: { name, ...entry.details },
        })
        const ends = oldExpiry === null ? oldKeyUntil : DateTime.min(oldExpiry, oldKeyUntil)
        keys.set(keyId, { ...old, row: { ...old.row, expiresAt: ends }, replacedBy: id })
        return { name }
      }),

      list: (orgId, page) =>
        Effect.sync(() => {
          const rows = [...keys.values()].filter((stored) => stored.orgId === orgId).map(({ row }) => row)
          return pageOf(rows, (row) => row.id, page)
        }),

      findByHashes: (hashes) =>
        Effect.sync(() => {
          const asked = [...keys.values()].filter(({ hash }) => hashes.includes(hash))
          const grant = ({ row: { id, projectId, expiresAt, rateLimit }, orgId }: StoredKey) => ({
            keyId: id,
            orgId,
            projectId: projectId ?? "",
            expiresAt,
            rateLimit,
          })
          return new Map(asked.map((stored) => [stored.hash, grant(stored)]))
        }),

      touch: (usage) =>
        Effect.sync(() => {
          for (const [keyId, at] of usage) {
            const stored = keys.get(keyId)
            if (stored === undefined) continue
            const last = stored.row.lastUsedAt
            if (last !== null && !DateTime.isGreaterThan(at, last)) continue
            keys.set(keyId, { ...stored, row: { ...stored.row, lastUsedAt: at } })
          }
        }),
    })
  }),
)
