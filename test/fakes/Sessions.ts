import { DateTime, Effect, Layer } from "effect"
import { SessionRepository, type StoredSession } from "#src/domain/sessions/SessionRepository.ts"
import { World } from "./World.ts"

const keyOf = ({ hash, orgId }: Pick<StoredSession, "hash" | "orgId">) => `${orgId} ${hash}`

/** Sessions in memory. */
export const layer = Layer.effect(
  SessionRepository,
  Effect.map(World, ({ orgs }) => {
    const rows = new Map<string, StoredSession>()
    const alive = (row: StoredSession | undefined, now: DateTime.Utc) =>
      row !== undefined && DateTime.isGreaterThan(row.expiresAt, now) ? row : undefined

    const insert = (session: StoredSession, keep: number) => {
      const same = [...rows.values()]
        .filter(
          ({ credentialHash, kind, orgId }) =>
            orgId === session.orgId && kind === session.kind && credentialHash === session.credentialHash,
        )
        .sort((a, b) => (a.id < b.id ? 1 : -1))
      for (const old of same.slice(keep - 1)) rows.delete(keyOf(old))
      if (session.orgId !== "" && !orgs.has(session.orgId)) return undefined
      rows.set(keyOf(session), session)
      return session
    }

    return SessionRepository.of({
      insert: (session, keep) => Effect.sync(() => void insert(session, keep)),
      find: (key, now) =>
        Effect.sync(() => {
          const row = alive(rows.get(keyOf(key)), now)
          return row?.kind === "link" ? undefined : row
        }),
      remove: (key) => Effect.sync(() => void rows.delete(keyOf(key))),
      removePerson: ({ before, credentialHash, orgIds, sid }) =>
        Effect.sync(() => {
          for (const [key, row] of rows) {
            const isNamed =
              (credentialHash === undefined || row.credentialHash === credentialHash) &&
              (sid === undefined || row.sid === sid)
            const isBefore = DateTime.isLessThanOrEqualTo(row.createdAt, before)
            if (row.kind === "person" && orgIds.includes(row.orgId) && isNamed && isBefore) rows.delete(key)
          }
        }),
      openLink: (key, session, keep) =>
        Effect.sync(() => {
          const link = alive(rows.get(keyOf(key)), session.createdAt)
          if (link?.kind !== "link") return undefined
          rows.delete(keyOf(link))
          return insert({ ...link, ...session, kind: "portal", sid: null }, keep)
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
