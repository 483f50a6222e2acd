import { Effect, Layer, Schedule, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { SessionRepository } from "../../domain/sessions/SessionRepository.ts"
import { Sessions } from "../../domain/sessions/Sessions.ts"
import { date, decodeRows, Time } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"

const decode = decodeRows(
  Schema.Struct({
    id: Schema.String,
    orgId: Schema.String,
    kind: Schema.Literals(["administrator", "key", "portal", "link"]),
    hash: Schema.String,
    credentialHash: Schema.String,
    createdAt: Time,
    expiresAt: Time,
  }),
)

const bytes = (hex: string) => Buffer.from(hex, "hex")

/** Sessions and portal links in PostgreSQL. */
export const layer = Layer.effect(
  SessionRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const columns = sql.literal(`
      id, org_id AS "orgId", kind, encode(hash, 'hex') AS hash, encode(credential_hash, 'hex') AS "credentialHash",
      created_at AS "createdAt", expires_at AS "expiresAt"`)

    return SessionRepository.of({
      insert: ({ createdAt, credentialHash, expiresAt, hash, id, kind, orgId }, keep) =>
        sql`
          WITH old AS (
            DELETE FROM sessions WHERE org_id = ${orgId} AND hash = ANY(ARRAY(
              SELECT hash FROM sessions
              WHERE org_id = ${orgId} AND credential_hash = ${bytes(credentialHash)} AND kind = ${kind}
              ORDER BY id DESC OFFSET ${keep - 1} LIMIT 10))
          )
          INSERT INTO sessions (org_id, hash, id, kind, credential_hash, created_at, expires_at)
          VALUES (${orgId}, ${bytes(hash)}, ${id}, ${kind}, ${bytes(credentialHash)}, ${date(createdAt)}, ${date(expiresAt)})`.pipe(
          Effect.asVoid,
          orUnavailable,
        ),

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

      openLink: (link, { createdAt, expiresAt, hash }) =>
        sql`
          WITH opened AS (
            DELETE FROM sessions
            WHERE org_id = ${link.orgId} AND hash = ${bytes(link.hash)} AND kind = 'link' AND expires_at > ${date(createdAt)}
            RETURNING org_id, id, credential_hash
          )
          INSERT INTO sessions (org_id, hash, id, kind, credential_hash, created_at, expires_at)
          SELECT org_id, ${bytes(hash)}, id, 'portal', credential_hash, ${date(createdAt)}, ${date(expiresAt)} FROM opened
          RETURNING ${columns}`.pipe(
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
  Effect.gen(function* () {
    const { removeExpired } = yield* Sessions
    yield* removeExpired.pipe(
      Effect.catch((error) => Effect.logWarning(`Expired sessions are not removed: ${error.error}`)),
      Effect.catchDefect((fault) => Effect.logError("Expired sessions are not removed", fault)),
      Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
      Effect.forkScoped,
    )
  }),
)
