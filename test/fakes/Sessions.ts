import { DateTime, Effect, Layer } from "effect"
import type { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import { SessionRepository, type StoredSession } from "#src/domain/sessions/SessionRepository.ts"
import { linkNotFound } from "#src/domain/sessions/Sessions.ts"
import { keepEntry, pageOf, World } from "./World.ts"

const keyOf = ({ hash, orgId }: Pick<StoredSession, "hash" | "orgId">) => `${orgId} ${hash}`

/** Sessions in memory. */
export const layer = Layer.effect(
  SessionRepository,
  Effect.map(World, (world) => {
    const { orgs } = world
    const rows = new Map<string, StoredSession>()
    const alive = (row: StoredSession | undefined, now: DateTime.Utc) =>
      row !== undefined && DateTime.isGreaterThan(row.expiresAt, now) ? row : undefined
    const isMade = ({ madeIn, orgId }: StoredSession, now: DateTime.Utc) =>
      madeIn === null ||
      ["", orgId].some((owner) => alive(rows.get(keyOf({ orgId: owner, hash: madeIn })), now) !== undefined)
    const removeAll = (found: ReadonlyArray<StoredSession>) => found.forEach((row) => rows.delete(keyOf(row)))

    const insert = (session: StoredSession, keep: number, entry?: AuditEntry) => {
      const same = [...rows.values()]
        .filter(
          ({ credentialHash, kind, orgId }) =>
            orgId === session.orgId && kind === session.kind && credentialHash === session.credentialHash,
        )
        .sort((a, b) => (a.id < b.id ? 1 : -1))
      for (const old of same.slice(keep - 1)) rows.delete(keyOf(old))
      if (session.orgId !== "" && !orgs.has(session.orgId)) return undefined
      rows.set(keyOf(session), session)
      if (entry !== undefined) keepEntry(world, session.orgId, entry)
      return session
    }

    return SessionRepository.of({
      insert: (session, keep, entry) => Effect.sync(() => void insert(session, keep, entry)),
      find: (key, now, kind) =>
        Effect.sync(() => {
          const row = alive(rows.get(keyOf(key)), now)
          return row === undefined || (row.kind === "link") !== (kind === "link") || !isMade(row, now) ? undefined : row
        }),
      remove: (key, entry) =>
        Effect.sync(() => {
          if (rows.delete(keyOf(key))) keepEntry(world, key.orgId, entry)
        }),
      links: (orgId, page, now) =>
        Effect.sync(() => {
          const own = [...rows.values()].filter((row) => row.orgId === orgId && row.madeBy !== null)
          const { hasMore, items } = pageOf(own, ({ id }) => id, page)
          const withState = items.map((row) => ({
            ...row,
            isAlive: alive(row, now) !== undefined && isMade(row, now),
          }))
          return { hasMore, items: withState }
        }),
      revokeLink: (orgId, linkId, entry) =>
        Effect.suspend(() => {
          const found = [...rows.values()].find(
            (row) => row.orgId === orgId && row.id === linkId && row.madeBy !== null,
          )
          if (found === undefined) return Effect.fail(linkNotFound())
          removeAll([found])
          keepEntry(world, orgId, entry)
          return Effect.void
        }),
      removePerson: ({ before, credentialHash, except = [], orgIds, sid }, entryOf) =>
        Effect.suspend(() => {
          const removed = [...rows.values()].filter(
            (row) =>
              row.kind === "person" &&
              orgIds.includes(row.orgId) &&
              !except.includes(`${row.orgId}:${row.person?.role}`) &&
              (credentialHash === undefined || row.credentialHash === credentialHash) &&
              (sid === undefined || row.sid === sid) &&
              (before === undefined || DateTime.isLessThanOrEqualTo(row.createdAt, before)),
          )
          removeAll(removed)
          return Effect.forEach(
            removed,
            (row) => Effect.map(entryOf(row), (entry) => keepEntry(world, row.orgId, entry)),
            { discard: true },
          )
        }),
      openLink: (key, session, keep, entry) =>
        Effect.sync(() => {
          const link = alive(rows.get(keyOf(key)), session.createdAt)
          if (link?.kind !== "link") return undefined
          rows.delete(keyOf(link))
          return insert({ ...link, ...session, kind: "portal" }, keep, entry)
        }),
      removeExpired: (now, limit) =>
        Effect.sync(() => {
          const expired = [...rows.values()].filter((row) => alive(row, now) === undefined).slice(0, limit)
          expired.forEach((row) => rows.delete(keyOf(row)))
          return expired.length
        }),
    })
  }),
)
