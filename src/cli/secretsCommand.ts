import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import { Console, Effect, Layer } from "effect"
import { Command } from "effect/cli"
import * as Config from "../boot/config.ts"
import { counted } from "../domain/plural.ts"
import type { OtherReplica, Reencrypted } from "../infrastructure/crypto/Reencryption.ts"
import { failure, print, table } from "./output.ts"
import { group } from "./flags.ts"

/** Limit of the ids in an error message. */
const maxListedIds = 10

const unreadableSentence = ({ unreadable: ids, what }: Reencrypted) => {
  const more = ids.length > maxListedIds ? `, and ${ids.length - maxListedIds} more` : ""
  return `${ids.length} ${what} cannot be decrypted with the keys of ENCRYPTION_KEY: ${ids.slice(0, maxListedIds).join(", ")}${more}`
}

/** Fails while replicas encrypt with another key: without it, what they store from now on could not be read. */
const othersWrite = (others: ReadonlyArray<OtherReplica>) => {
  const ids = [...new Set(others.map(({ keyId }) => keyId))].join(", ")
  return failure(
    `${counted(others.length, "replica")} may still encrypt with another key (${ids}). Put the new key first in ENCRYPTION_KEY of every replica and restart them, then run this command again; one that was killed counts for a minute`,
  )
}

const reencryptAll = Effect.fnUntraced(function* (settings: Config.Settings) {
  // Imported here: the other commands start faster without the service's modules.
  const [Cipher, { describeSqlError }, EncryptionKeys, Reencryption] = yield* Effect.promise(() =>
    Promise.all([
      import("../infrastructure/crypto/AesCipher.ts"),
      import("../infrastructure/database/PostgresDatabase.ts"),
      import("../infrastructure/crypto/EncryptionKeys.ts"),
      import("../infrastructure/crypto/Reencryption.ts"),
    ]),
  )
  const keys = yield* EncryptionKeys.load(settings)
  return yield* Reencryption.reencrypt(keys, (what, done) => Console.error(`${what}: ${done} done`)).pipe(
    Effect.provide(Cipher.layer(keys)),
    Effect.catchTag("SqlError", (error) =>
      failure(`The database failed: ${describeSqlError(error)}. Run this command again: it continues where it stopped`),
    ),
  )
})

const reencrypt = Command.make(
  "reencrypt",
  {},
  Effect.fnUntraced(function* () {
    const settings = yield* Config.load
    const { Database } = yield* Effect.promise(() => import("../infrastructure/database/Database.ts"))
    const { others, secrets: results } = yield* Effect.provide(
      reencryptAll(settings),
      Layer.merge(Database.layer(settings), NodeCrypto.layer),
    )
    yield* print(JSON.stringify({ secrets: results }), {
      out: table(
        ["SECRETS", "DONE", "LEFT"],
        results.map(({ done, left, what }) => [what, done, left]),
      ),
    })
    const failed = results.filter(({ unreadable }) => unreadable.length > 0)
    if (failed.length > 0) {
      return yield* failure(
        `${failed.map(unreadableSentence).join("; ")}. Add their key to ENCRYPTION_KEY, after a comma`,
      )
    }
    if (results.some(({ left }) => left > 0)) {
      return yield* failure(
        "During the run some secrets were stored with another key. Put the new key first in ENCRYPTION_KEY of every replica, then run this command again",
      )
    }
    if (others.length > 0) return yield* othersWrite(others)
    yield* Console.error("Every secret is encrypted with the first key of ENCRYPTION_KEY. Remove the other keys.")
  }),
).pipe(
  Command.withDescription(
    "Encrypt every stored secret with the first key of ENCRYPTION_KEY, in the database of DATABASE_URL or DATA_DIR; you can stop it and run it again",
  ),
)

export const secrets = group("secrets", "Stored secrets; reads the environment variables of serve", [reencrypt])
