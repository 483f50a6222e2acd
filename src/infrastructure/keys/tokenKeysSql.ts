import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { TokenKeyRepository } from "../../domain/keys/KeyTokens.ts"
import { date, decodeRows, Time } from "../database/fragments.ts"
import { orUnavailable } from "../database/orUnavailable.ts"

const decode = decodeRows(
  Schema.Struct({
    id: Schema.String,
    n: Schema.Int,
    publicKey: Schema.String,
    privateKey: Schema.String,
    signsFrom: Time,
  }),
)

/** The keys of tokens in PostgreSQL. */
export const layer = Layer.effect(
  TokenKeyRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    return TokenKeyRepository.of({
      list: sql`
        SELECT id, n, public_key AS "publicKey", private_key AS "privateKey", signs_from AS "signsFrom"
        FROM token_keys ORDER BY n`.pipe(decode, orUnavailable),

      add: ({ id, n, privateKey, publicKey, signsFrom }, endedBefore) =>
        sql`
          WITH ended AS (
            DELETE FROM token_keys WHERE n < (SELECT max(n) FROM token_keys WHERE signs_from < ${date(endedBefore)})
          )
          INSERT INTO token_keys (n, id, public_key, private_key, signs_from)
          VALUES (${n}, ${id}, ${publicKey}, ${privateKey}, ${date(signsFrom)}) ON CONFLICT (n) DO NOTHING`.pipe(
          Effect.asVoid,
          orUnavailable,
        ),
    })
  }),
)
