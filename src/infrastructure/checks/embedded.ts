import { Effect, type Redacted } from "effect"
import type { SecureRandom } from "effect/crypto"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { accessSync, constants, existsSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import * as DataFolder from "../database/embedded/DataFolder.ts"
import { describeSqlError, embeddedClient } from "../database/Database.ts"
import * as EmbeddedDatabase from "../database/embedded/EmbeddedDatabase.ts"
import * as EncryptionKeys from "../crypto/EncryptionKeys.ts"
import { type Check, fail, ok } from "./Check.ts"
import { checkMigrations } from "./migrations.ts"
import { checkSecrets } from "./secrets.ts"

type Keys = ReadonlyArray<Redacted.Redacted<Uint8Array>>

/** The first folder on the way up that is there. */
const existing = (path: string): string => (existsSync(path) ? path : existing(dirname(path)))

const mayWrite = (folder: string) => {
  try {
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** Those of the configuration, else the folder's own; none is made. */
const keysOf = (path: string, encryptionKeys: Keys | undefined) =>
  encryptionKeys === undefined && !existsSync(join(path, "encryption.key"))
    ? Effect.succeed([])
    : EncryptionKeys.load({ encryptionKeys, dataDir: path })

const checkOpened = Effect.fnUntraced(function* (path: string, encryptionKeys: Keys | undefined) {
  const sql = yield* embeddedClient(yield* EmbeddedDatabase.make(path))
  const database = Effect.provideService(SqlClient.SqlClient, sql)
  const migrations = yield* database(checkMigrations)
  const secrets = migrations.complete ? [yield* database(checkSecrets(yield* keysOf(path, encryptionKeys)))] : []
  return [ok("database", `embedded, in ${path}`), migrations.check, ...secrets]
})

/** Whether the embedded database of DATA_DIR can be used. One that a running service has is not opened. */
export const checkEmbedded = (
  dataDir: string,
  encryptionKeys: Keys | undefined,
): Effect.Effect<ReadonlyArray<Check>, never, SecureRandom.SecureRandom> => {
  if (dataDir === "memory") return Effect.succeed([ok("database", "embedded, in memory: nothing is kept")])
  const path = resolve(dataDir)
  const folder = existing(path)
  if (!mayWrite(folder)) {
    return Effect.succeed([
      fail("database", `${folder} cannot be written`, "let this user write there, or set DATA_DIR to another folder"),
    ])
  }
  if (!existsSync(join(path, "postgres"))) {
    return Effect.succeed([ok("database", `embedded; the first start makes it in ${path}`)])
  }
  return checkOpened(path, encryptionKeys).pipe(
    Effect.scoped,
    Effect.provide(Reactivity.layer),
    Effect.catchTags({
      StartupError: (error) =>
        Effect.succeed([
          DataFolder.isInUse(error)
            ? ok("database", `embedded, in ${path}; another process has it, so it was not opened`)
            : fail("database", error.message, "see docs/embedded-database.md"),
        ]),
      SqlError: (error) => Effect.succeed([fail("database", describeSqlError(error), "see docs/embedded-database.md")]),
    }),
  )
}
