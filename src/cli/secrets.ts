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
  return `${ids.length} ${what} cannot be read with any key that is given: ${ids.slice(0, named).join(", ")}${more}`
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
          message: `The database failed: ${describeSqlError(error)}; run this again for what is left`,
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
        message: `${lost.map(unreadable).join("; ")}. Add the key that they were encrypted with to ENCRYPTION_KEY, after a comma`,
      })
    }
    if (ends.some(({ left }) => left > 0)) {
      return yield* new CommandFailed({
        message:
          "Some were stored meanwhile under another key: give every replica the new key first, and run this again",
      })
    }
    yield* Console.error("Every secret is under the first key of ENCRYPTION_KEY; no other key is needed any more.")
  }),
).pipe(
  Command.withDescription(
    "Encrypt every stored secret under the first key of ENCRYPTION_KEY, in the database of DATABASE_URL or DATA_DIR; may be stopped and run again",
  ),
)

/** What is done about the secrets that the database keeps. */
export const secrets = Command.make("secrets").pipe(
  Command.withDescription("Stored secrets, with the environment variables of serve"),
  Command.withSubcommands([reencrypt]),
)
