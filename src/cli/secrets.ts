import * as NodeCrypto from "@effect/platform-node/NodeCrypto"
import { Console, Effect, Layer } from "effect"
import { Command } from "effect/cli"
import * as Config from "../boot/config.ts"
import type { Reencrypted } from "../infrastructure/crypto/Reencryption.ts"
import { CommandFailed } from "./CommandFailed.ts"
import { print, table } from "./output.ts"

/** How many of the rows that cannot be read are named. */
const named = 10

const unreadable = ({ unreadable: ids, what }: Reencrypted) => {
  const more = ids.length > named ? `, and ${ids.length - named} more` : ""
  return `${ids.length} ${what} cannot be decrypted with the given keys: ${ids.slice(0, named).join(", ")}${more}`
}

const run = Effect.fnUntraced(function* (settings: Config.Settings) {
  // Loaded only here, like all of the service.
  const [Cipher, { describeSqlError }, EncryptionKeys, Reencryption] = yield* Effect.promise(() =>
    Promise.all([
      import("../infrastructure/crypto/Cipher.ts"),
      import("../infrastructure/database/Database.ts"),
      import("../infrastructure/crypto/EncryptionKeys.ts"),
      import("../infrastructure/crypto/Reencryption.ts"),
    ]),
  )
  const keys = yield* EncryptionKeys.load(settings)
  return yield* Reencryption.reencrypt(keys, (what, done) => Console.error(`${what}: ${done} done`)).pipe(
    Effect.provide(Cipher.layer(keys)),
    Effect.catchTag("SqlError", (error) =>
      Effect.fail(
        new CommandFailed({
          message: `The database failed: ${describeSqlError(error)}; run this command again`,
        }),
      ),
    ),
  )
})

const reencrypt = Command.make(
  "reencrypt",
  {},
  Effect.fnUntraced(function* () {
    const settings = yield* Config.load
    const { Database } = yield* Effect.promise(() => import("../infrastructure/database/Database.ts"))
    const ends = yield* Effect.provide(run(settings), Layer.merge(Database.layer(settings), NodeCrypto.layer))
    yield* print(JSON.stringify({ secrets: ends }), {
      out: table(
        ["SECRETS", "DONE", "LEFT"],
        ends.map(({ done, left, what }) => [what, done, left]),
      ),
    })
    const lost = ends.filter((end) => end.unreadable.length > 0)
    if (lost.length > 0) {
      return yield* new CommandFailed({
        message: `${lost.map(unreadable).join("; ")}. Add their key to ENCRYPTION_KEY, after a comma`,
      })
    }
    if (ends.some(({ left }) => left > 0)) {
      return yield* new CommandFailed({
        message:
          "Some secrets were stored with another key meanwhile. Put the new key first in every replica, and run this command again",
      })
    }
    yield* Console.error("Every secret is encrypted with the first key of ENCRYPTION_KEY. Remove the other keys.")
  }),
).pipe(
  Command.withDescription(
    "Encrypt every stored secret with the first key of ENCRYPTION_KEY, in the database of DATABASE_URL or DATA_DIR; you can stop it and run it again",
  ),
)

/** What is done about the secrets that the database keeps. */
export const secrets = Command.make("secrets").pipe(
  Command.withDescription("Stored secrets; reads the environment variables of serve"),
  Command.withSubcommands([reencrypt]),
)
