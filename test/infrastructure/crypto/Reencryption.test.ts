import { assert, describe } from "@effect/vitest"
import { Effect, Layer, Logger, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { SqlClient } from "effect/sql"
import { Cipher } from "#src/domain/Cipher.ts"
import { warnOfOtherKey } from "#src/infrastructure/checks/checkSecrets.ts"
import * as AesCipher from "#src/infrastructure/crypto/AesCipher.ts"
import { reencrypt } from "#src/infrastructure/crypto/Reencryption.ts"
import { databases } from "../../support/databases.ts"
import { it } from "../../support/it.ts"

/** Promise (Backup and rotation of keys) */

const key = (byte: number) => Redacted.make(new Uint8Array(32).fill(byte))
const [old, fresh, lost] = [key(1), key(2), key(3)]
type Keys = ReadonlyArray<Redacted.Redacted<Uint8Array>>

const under = (keys: Keys) => Layer.provide(AesCipher.layer(keys), SecureRandom.layerWebCrypto)
const encrypt = (plain: string, owner: string, ...keys: Keys) =>
  Effect.provide(
    Cipher.use((cipher) => cipher.encrypt(Redacted.make(plain), owner)),
    under(keys),
  )
const run = (keys: Keys, onBatch?: (what: string, done: number) => Effect.Effect<void>) =>
  Effect.map(Effect.provide(reencrypt(keys, onBatch), under(keys)), ({ secrets }) => secrets)
type Ends = Effect.Success<ReturnType<typeof run>>

const doneOf = (ends: Ends) => ends.map(({ done }) => done)
const leftOf = (ends: Ends) => ends.map(({ left }) => left)

/** An org with endpoints, a schedule, a job for each kind of owner, a finished job, and a stored answer. */
const fill = Effect.fnUntraced(function* (key: Redacted.Redacted<Uint8Array>, endpoints = 1) {
  const sql = yield* SqlClient.SqlClient
  const now = new Date()
  yield* sql`INSERT INTO orgs (id, name, created_at) VALUES ('o', 'o', ${now})`
  for (let n = 0; n < endpoints; n++) {
    const id = `w${String(n).padStart(4, "0")}`
    const rotated = n === 0
    yield* sql`
      INSERT INTO webhook_endpoints (id, org_id, lane, url, active, secret, previous_secret, previous_secret_until, headers, auth, created_at,
        updated_at)
      VALUES (${id}, 'o', ${id}, 'https://example.com', true, ${yield* encrypt(`secret of ${id}`, id, key)},
        ${rotated ? yield* encrypt("previous", id, key) : null}, ${rotated ? new Date(now.getTime() + 60_000) : null},
        ${rotated ? yield* encrypt("headers", id, key) : null}, ${rotated ? yield* encrypt("auth", id, key) : null}, ${now}, ${now})`
  }
  yield* sql`
    INSERT INTO org_signing_keys (org_id, public_key, private_key, previous_public_key, previous_private_key, previous_until,
      created_at)
    VALUES ('o', 'p', ${yield* encrypt("private", "o", key)}, 'q', ${yield* encrypt("previous private", "o", key)},
      ${new Date(now.getTime() + 60_000)}, ${now})`
  yield* sql`
    INSERT INTO token_keys (n, id, public_key, private_key, signs_from)
    VALUES (1, 't', 'p', ${yield* encrypt("of t", "t", key)}, ${now})`
  yield* sql`
    INSERT INTO alerts (id, org_id, alert, secret, active, due_at)
    VALUES ('a', 'o', '{}', ${yield* encrypt("of a", "a", key)}, true, ${now})`
  yield* sql`
    INSERT INTO job_schedules (id, org_id, workflow, cron, timezone, callback_secret, skip_callbacks, next_at, created_at)
    VALUES ('s', 'o', 'w', '* * * * *', 'UTC', ${yield* encrypt("of s", "s", key)}, false, ${now}, ${now})`
  for (const [id, owner, status] of [
    ["j1", "j1", "queued"],
    ["j2", "s", "running"],
    ["j3", "j3", "queued"],
  ] as const) {
    yield* sql`
      INSERT INTO jobs (id, org_id, workflow, callback_secret, callback_secret_owner, skip_callbacks, status, created_at, updated_at)
      VALUES (${id}, 'o', 'w', ${yield* encrypt(`of ${owner}`, owner, key)}, ${owner}, false, ${status}, ${now}, ${now})`
  }
  yield* sql`
    INSERT INTO events (id, org_id, job_id, type, body, callback_secret, callback_secret_owner, created_at)
    VALUES ('e', 'o', 'j4', 'job.completed', '{}', ${yield* encrypt("of j4", "j4", key)}, 'j4', ${now})`
  yield* sql`
    INSERT INTO idempotency_keys (org_id, caller, operation, key, record, expires_at)
    VALUES ('', 'administrator', 'keys.create', 'a b', ${yield* encrypt("answer", "idempotency administrator keys.create a b", key)},
      ${new Date(now.getTime() + 60_000)})`
})

/** Reads every secret with these keys only; dies of one that cannot be decrypted. */
const readAll = Effect.fnUntraced(function* (...keys: Keys) {
  const sql = yield* SqlClient.SqlClient
  const rows = yield* sql<{ stored: string; owner: string }>`
    SELECT secret AS stored, id AS owner FROM webhook_endpoints
    UNION ALL SELECT previous_secret, id FROM webhook_endpoints WHERE previous_secret IS NOT NULL
    UNION ALL SELECT headers, id FROM webhook_endpoints WHERE headers IS NOT NULL
    UNION ALL SELECT auth, id FROM webhook_endpoints WHERE auth IS NOT NULL
    UNION ALL SELECT private_key, org_id FROM org_signing_keys
    UNION ALL SELECT previous_private_key, org_id FROM org_signing_keys
    UNION ALL SELECT private_key, id FROM token_keys
    UNION ALL SELECT secret, id FROM alerts
    UNION ALL SELECT callback_secret, id FROM job_schedules
    UNION ALL SELECT callback_secret, callback_secret_owner FROM jobs
    UNION ALL SELECT callback_secret, callback_secret_owner FROM events
    UNION ALL SELECT record, concat_ws(' ', 'idempotency', caller, operation, key) FROM idempotency_keys`
  return yield* Effect.forEach(rows, ({ owner, stored }) =>
    Effect.provide(
      Cipher.use((cipher) => Effect.map(cipher.decrypt(stored, owner), Redacted.value)),
      under(keys),
    ),
  )
})

describe.each(Object.entries(databases))("re-encryption, %s", (_, database) => {
  it.live("encrypts every secret with the first key, so that the old one is no longer needed", () =>
    Effect.gen(function* () {
      yield* fill(old)
      const before = yield* readAll(old)
      const ends = yield* run([fresh, old])
      assert.deepStrictEqual([doneOf(ends), leftOf(ends)], [[1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1], Array(12).fill(0)])
      assert.deepStrictEqual((yield* readAll(fresh)).toSorted(), before.toSorted())
      assert.deepStrictEqual(doneOf(yield* run([fresh])), Array(12).fill(0))
    }).pipe(Effect.provide(database)),
  )

  it.live("a start whose keys decrypt none of the secrets is warned of, and no other", () =>
    Effect.gen(function* () {
      const warnings = (...keys: Keys) =>
        Effect.gen(function* () {
          const said: Array<unknown> = []
          const logger = Logger.layer([Logger.make(({ message }) => void said.push(message))])
          yield* Effect.provide(warnOfOtherKey, Layer.merge(under(keys), logger))
          return said.flat().map(String)
        })
      assert.deepStrictEqual(yield* warnings(fresh), [])
      yield* fill(old)
      assert.deepStrictEqual(yield* warnings(fresh, old), [])
      const [warning, ...more] = yield* warnings(fresh, lost)
      assert.include(warning, AesCipher.keyId(Redacted.value(old)))
      assert.deepStrictEqual(more, [])
    }).pipe(Effect.provide(database)),
  )

  it.live("tells which running replicas still encrypt with another key", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      const idOf = (key: Redacted.Redacted<Uint8Array>) => AesCipher.keyId(Redacted.value(key))
      for (const [replica, key, age] of [
        ["a", fresh, 0],
        ["b", old, 30],
        ["c", old, 61],
      ] as const) {
        yield* sql`
          INSERT INTO replicas (id, started_at, seen_at, encryption_key_id)
          VALUES (${replica}, now(), now() - make_interval(secs => ${age}), ${idOf(key)})`
      }
      const { others } = yield* Effect.provide(reencrypt([fresh, old]), under([fresh, old]))
      assert.deepStrictEqual(others, [{ replicaId: "b", keyId: idOf(old) }])
    }).pipe(Effect.provide(database)),
  )

  it.live("continues after an interruption, and does nothing twice", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* fill(old, 601)
      yield* run([fresh, old], (_, done) => (done === 500 ? Effect.interrupt : Effect.void)).pipe(Effect.exit)
      const untouched = sql`SELECT id, secret FROM webhook_endpoints WHERE id < 'w0500' ORDER BY id`
      const first = yield* untouched
      assert.deepStrictEqual(doneOf(yield* run([fresh, old])), [101, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1])
      assert.deepStrictEqual(yield* untouched, first)
      assert.strictEqual((yield* readAll(fresh)).length, 614)
    }).pipe(Effect.provide(database)),
  )

  // Seen failing without the comparison with the value that was read.
  it.live("keeps a secret that is changed meanwhile, and counts it as left", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* fill(old, 2)
      const newer = yield* encrypt("newer", "w0001", old)
      // The update comes between the read and the write: it waits for the row, and then finds another value.
      const change = sql`UPDATE webhook_endpoints SET secret = ${newer} WHERE id = 'w0001'`
      const slow = Layer.effect(
        Cipher,
        Effect.map(Cipher, (cipher) => ({
          ...cipher,
          decrypt: (stored: string, owner: string) =>
            Effect.tap(cipher.decrypt(stored, owner), () => (owner === "w0001" ? Effect.orDie(change) : Effect.void)),
        })),
      ).pipe(Layer.provide(under([fresh, old])))
      const { secrets } = yield* Effect.provide(reencrypt([fresh, old]), slow)
      assert.deepInclude(secrets[0], { done: 1, left: 1, unreadable: [] })
      assert.include(yield* readAll(fresh, old), "newer")
      assert.deepInclude((yield* run([fresh, old]))[0], { done: 1, left: 0 })
      assert.include(yield* readAll(fresh), "newer")
    }).pipe(Effect.provide(database)),
  )

  it.live("names secrets that no key can decrypt, and encrypts the rest", () =>
    Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* fill(old, 3)
      yield* sql`UPDATE webhook_endpoints SET secret = ${yield* encrypt("x", "w0001", lost)} WHERE id = 'w0001'`
      // The secret of another row: a copied value is not re-encrypted.
      yield* sql`UPDATE jobs SET callback_secret = (SELECT callback_secret FROM jobs WHERE id = 'j1') WHERE id = 'j3'`
      const ends = yield* run([fresh, old])
      assert.deepStrictEqual(doneOf(ends), [2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1])
      assert.deepStrictEqual(
        ends.map(({ unreadable }) => unreadable),
        [["w0001"], [], [], [], [], [], [], [], [], ["j3"], [], []],
      )
      assert.deepStrictEqual(leftOf(ends), [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0])
    }).pipe(Effect.provide(database)),
  )
})
