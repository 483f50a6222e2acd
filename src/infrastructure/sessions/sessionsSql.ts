import { type DateTime, Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { SignedInPerson } from "../../domain/Person.ts"
import { PortalRights } from "../../domain/sessions/Portal.ts"
import { SessionRepository, type StoredSession } from "../../domain/sessions/SessionRepository.ts"
import { linkNotFound, Sessions } from "../../domain/sessions/Sessions.ts"
import { audited } from "../audit/audited.ts"
import { lockName } from "../database/boundedTransactions.ts"
import { afterCursor, date, decodePage, decodeRows, deleteFirst, pageOf, texts, Time } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { hourly } from "../background.ts"

const Row = Schema.Struct({
  id: Schema.String,
  orgId: Schema.String,
  kind: Schema.Literals(["administrator", "key", "person", "portal", "link"]),
  hash: Schema.String,
  credentialHash: Schema.String,
  person: Schema.NullOr(Schema.fromJsonString(SignedInPerson)),
  sid: Schema.NullOr(Schema.String),
  portal: Schema.NullOr(Schema.fromJsonString(PortalRights)),
  madeBy: Schema.NullOr(Schema.String),
  madeIn: Schema.NullOr(Schema.String),
  createdAt: Time,
  expiresAt: Time,
})
const decode = decodeRows(Row)
const decodeLinks = decodePage(Schema.Struct({ ...Row.fields, isAlive: Schema.Boolean }))

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
      person, sid, portal, made_by AS "madeBy", encode(made_in, 'hex') AS "madeIn",
      created_at AS "createdAt", expires_at AS "expiresAt"`)

    /** Whether a session has not ended, nor the one in which its link was made: that of the org, or of all orgs. */
    const isAlive = (now: DateTime.Utc) => sql`
      sessions.expires_at > ${date(now)} AND (made_in IS NULL OR EXISTS (
        SELECT FROM sessions AS maker
        WHERE maker.org_id IN ('', sessions.org_id) AND maker.hash = sessions.made_in AND maker.expires_at > ${date(now)}))`

    /** In a transaction: removes the oldest sessions of a credential and kind, so that `keep` remain. */
    const keepNewest = Effect.fnUntraced(function* (
      { credentialHash, kind, orgId }: Pick<StoredSession, "credentialHash" | "kind" | "orgId">,
      keep: number,
    ) {
      yield* lockName(sql, `sessions:${orgId}:${kind}:${credentialHash}`)
      yield* sql`
        DELETE FROM sessions WHERE org_id = ${orgId} AND hash = ANY(ARRAY(
          SELECT hash FROM sessions
          WHERE org_id = ${orgId} AND credential_hash = ${bytes(credentialHash)} AND kind = ${kind}
          ORDER BY id DESC OFFSET ${keep} LIMIT ${maxRemoved}))`
    })

    return SessionRepository.of({
      // Inserts none for an org that does not exist any more: the erasure of the org waits for the transaction, or has
      // removed its row.
      insert: (session, keep, entry) =>
        Effect.gen(function* () {
          yield* keepNewest(session, keep - 1)
          const { createdAt, credentialHash, expiresAt, hash, id, kind, madeBy, madeIn, orgId, person, portal, sid } =
            session
          yield* audited(
            sql,
            entry,
            sql`
              INSERT INTO sessions (org_id, hash, id, kind, credential_hash, person, sid, portal, made_by, made_in,
                created_at, expires_at)
              SELECT ${orgId}, ${bytes(hash)}, ${id}, ${kind}, ${bytes(credentialHash)}, ${person && JSON.stringify(person)},
                ${sid}, ${portal && JSON.stringify(portal)}, ${madeBy}, ${madeIn === null ? null : bytes(madeIn)}::bytea,
                ${date(createdAt)}, ${date(expiresAt)}
              WHERE ${orgId} = '' OR EXISTS (SELECT FROM orgs WHERE id = ${orgId} FOR KEY SHARE)
              RETURNING org_id AS "orgId"`,
          )
        }).pipe(sql.withTransaction, orUnavailable),

      find: ({ hash, orgId }, now, kind) =>
        sql`
          SELECT ${columns} FROM sessions
          WHERE org_id = ${orgId} AND hash = ${bytes(hash)} AND (kind = 'link') = ${kind === "link"}::boolean
            AND ${isAlive(now)}`.pipe(
          decode,
          Effect.map(([session]) => session),
          orUnavailable,
        ),

      remove: ({ hash, orgId }, entry) =>
        audited(
          sql,
          entry,
          sql`DELETE FROM sessions WHERE org_id = ${orgId} AND hash = ${bytes(hash)} RETURNING org_id AS "orgId"`,
        ).pipe(Effect.asVoid, orUnavailable),

      links: (orgId, page, now) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT ${columns}, ${isAlive(now)} AS "isAlive" FROM sessions
            WHERE org_id = ${orgId} AND made_by IS NOT NULL AND ${afterCursor(sql, page)}`,
          "id",
          ["person", "portal"],
        ).pipe(decodeLinks, orUnavailable),

      revokeLink: (orgId, linkId, entry) =>
        audited(
          sql,
          entry,
          sql`
            DELETE FROM sessions WHERE org_id = ${orgId} AND id = ${linkId} AND made_by IS NOT NULL
            RETURNING org_id AS "orgId"`,
        ).pipe(
          orUnavailable,
          Effect.flatMap((rows) => (rows.length === 0 ? Effect.fail(linkNotFound()) : Effect.void)),
        ),

      removePerson: ({ before, credentialHash, except = [], orgIds, sid }, entryOf) =>
        Effect.gen(function* () {
          const removed = yield* decode(sql`
            DELETE FROM sessions WHERE org_id = ANY(${texts(orgIds)}) AND kind = 'person'
              ${before === undefined ? sql.literal("") : sql`AND created_at <= ${date(before)}`}
              AND org_id || ':' || (person::json ->> 'role') <> ALL(${texts(except)})
              ${credentialHash === undefined ? sql.literal("") : sql`AND credential_hash = ${bytes(credentialHash)}`}
              ${sid === undefined ? sql.literal("") : sql`AND sid = ${sid}`}
            RETURNING ${columns}`)
          for (const session of removed) {
            yield* audited(sql, yield* entryOf(session), sql`SELECT ${session.orgId} AS "orgId"`)
          }
        }).pipe(sql.withTransaction, orUnavailable),

      openLink: (link, { createdAt, expiresAt, hash }, keep, entry) =>
        Effect.gen(function* () {
          // The row stays: a revocation that waits for it finds the portal.
          const opened = yield* decode(
            audited(
              sql,
              entry,
              sql`
                UPDATE sessions SET hash = ${bytes(hash)}, kind = 'portal', created_at = ${date(createdAt)},
                  expires_at = ${date(expiresAt)}
                WHERE org_id = ${link.orgId} AND hash = ${bytes(link.hash)} AND kind = 'link'
                  AND expires_at > ${date(createdAt)}
                RETURNING ${columns}`,
            ),
          )
          const [portal] = opened
          if (portal !== undefined) yield* keepNewest(portal, keep)
          return portal
        }).pipe(sql.withTransaction, orUnavailable),

      removeExpired: (now, limit) =>
        orUnavailableWithin("sweep")(
          deleteFirst(
            sql,
            "sessions",
            sql`expires_at <= ${date(now)} ORDER BY expires_at LIMIT ${limit} FOR UPDATE SKIP LOCKED`,
          ),
        ),
    })
  }),
)

/** Removes expired sessions about every hour. */
export const sessionWorker = Layer.effectDiscard(
  Effect.flatMap(Sessions, ({ removeExpired }) => hourly("Expired sessions are not removed", removeExpired)),
)
