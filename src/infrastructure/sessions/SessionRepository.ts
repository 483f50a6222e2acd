import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { SignedInPerson } from "../../domain/sessions/Person.ts"
import { PortalRights } from "../../domain/sessions/Portal.ts"
import { SessionRepository, type StoredSession } from "../../domain/sessions/SessionRepository.ts"
import { Sessions } from "../../domain/sessions/Sessions.ts"
import { date, decodeRows, texts, Time } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { hourly } from "../background.ts"

const decode = decodeRows(
  Schema.Struct({
    id: Schema.String,
    orgId: Schema.String,
    kind: Schema.Literals(["administrator", "key", "person", "portal", "link"]),
    hash: Schema.String,
    credentialHash: Schema.String,
    person: Schema.NullOr(Schema.fromJsonString(SignedInPerson)),
    sid: Schema.NullOr(Schema.String),
    portal: Schema.NullOr(Schema.fromJsonString(PortalRights)),
    createdAt: Time,
    expiresAt: Time,
  }),
)

/** Sessions that one insertion removes: more than one only after the bound was lowered. */
const maxRemoved = 10

const bytes = (hex: string) => Buffer.from(hex, "hex")

/** Sessions and portal links in PostgreSQL. */
export const layer = Layer.effect(
  SessionRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const columns = sql.literal(`
      id, org_id AS "orgId", kind, encode(hash, 'hex') AS hash, encode(credential_hash, 'hex') AS "credentialHash",
      person, sid, portal, created_at AS "createdAt", expires_at AS "expiresAt"`)

    /**
     * In a transaction: inserts a session beside the newest of its credential and kind, so that `keep` remain. Inserts
     * none for an org that does not exist any more: the erasure of the org waits for the transaction, or has removed
     * its row.
     */
    const insertOneOf = Effect.fnUntraced(function* (
      { createdAt, credentialHash, expiresAt, hash, id, kind, orgId, person, portal, sid }: StoredSession,
      keep: number,
    ) {
      const credential = bytes(credentialHash)
      yield* sql`SELECT pg_advisory_xact_lock(hashtextextended(${`gatehouse:sessions:${orgId}:${kind}:${credentialHash}`}, 0))`
      // A separate statement, so that it sees what the previous holder of the lock has committed.
      yield* sql`
        DELETE FROM sessions WHERE org_id = ${orgId} AND hash = ANY(ARRAY(
          SELECT hash FROM sessions WHERE org_id = ${orgId} AND credential_hash = ${credential} AND kind = ${kind}
          ORDER BY id DESC OFFSET ${keep - 1} LIMIT ${maxRemoved}))`
      return yield* sql`
        INSERT INTO sessions (org_id, hash, id, kind, credential_hash, person, sid, portal, created_at, expires_at)
        SELECT ${orgId}, ${bytes(hash)}, ${id}, ${kind}, ${credential}, ${person && JSON.stringify(person)}, ${sid},
          ${portal && JSON.stringify(portal)}, ${date(createdAt)}, ${date(expiresAt)}
        WHERE ${orgId} = '' OR EXISTS (SELECT FROM orgs WHERE id = ${orgId} FOR KEY SHARE)
        RETURNING ${columns}`
    })

    return SessionRepository.of({
      insert: (session, keep) => insertOneOf(session, keep).pipe(sql.withTransaction, Effect.asVoid, orUnavailable),

      find: ({ hash, orgId }, now) =>
        sql`
          SELECT ${columns} FROM sessions
          WHERE org_id = ${orgId} AND hash = ${bytes(hash)} AND kind <> 'link' AND expires_at > ${date(now)}`.pipe(
          decode,
          Effect.map(([session]) => session),
          orUnavailable,
        ),

      remove: ({ hash, orgId }) =>
        sql`DELETE FROM sessions WHERE org_id = ${orgId} AND hash = ${bytes(hash)}`.pipe(Effect.asVoid, orUnavailable),

      removePerson: ({ before, credentialHash, orgIds, sid }) =>
        sql`
          DELETE FROM sessions WHERE org_id = ANY(${texts(orgIds)}) AND kind = 'person' AND created_at <= ${date(before)}
            ${credentialHash === undefined ? sql.literal("") : sql`AND credential_hash = ${bytes(credentialHash)}`}
            ${sid === undefined ? sql.literal("") : sql`AND sid = ${sid}`}`.pipe(Effect.asVoid, orUnavailable),

      openLink: (link, session, keep) =>
        Effect.gen(function* () {
          type Opened = { id: string; credential: string; person: string | null; portal: string | null }
          const [opened] = yield* sql<Opened>`
            DELETE FROM sessions
            WHERE org_id = ${link.orgId} AND hash = ${bytes(link.hash)} AND kind = 'link'
              AND expires_at > ${date(session.createdAt)}
            RETURNING id, encode(credential_hash, 'hex') AS credential, person, portal`
          if (opened === undefined) return []
          const { credential: credentialHash, id } = opened
          const person = opened.person === null ? null : (JSON.parse(opened.person) as SignedInPerson)
          const portal = opened.portal === null ? null : (JSON.parse(opened.portal) as PortalRights)
          const made = { id, orgId: link.orgId, kind: "portal", credentialHash, person, sid: null, portal } as const
          return yield* insertOneOf({ ...session, ...made }, keep)
        }).pipe(
          sql.withTransaction,
          decode,
          Effect.map(([session]) => session),
          orUnavailable,
        ),

      removeExpired: (now, limit) =>
        sql`
          DELETE FROM sessions WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM sessions WHERE expires_at <= ${date(now)} ORDER BY expires_at LIMIT ${limit}
            FOR UPDATE SKIP LOCKED
          )) RETURNING 1`.pipe(
          Effect.map((removed) => removed.length),
          orUnavailableWithin("sweep"),
        ),
    })
  }),
)

/** Removes expired sessions about every hour. */
export const sessionWorker = Layer.effectDiscard(
  Effect.flatMap(Sessions, ({ removeExpired }) => hourly("Expired sessions are not removed", removeExpired)),
)
