import { Effect, type Redacted } from "effect"
import type { SecureRandom } from "effect/crypto"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { accessSync, constants, existsSync, statfsSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import * as DataFolder from "../database/embedded/DataFolder.ts"
import { embeddedClient } from "../database/Database.ts"
import { describeSqlError } from "../database/PostgresDatabase.ts"
import * as EmbeddedDatabase from "../database/embedded/EmbeddedDatabase.ts"
import * as EncryptionKeys from "../crypto/EncryptionKeys.ts"
import { type Check, fail, ok } from "./Check.ts"
import { checkMigrations } from "./checkPostgres.ts"
import { checkSecrets } from "./checkSecrets.ts"
import { checkStorage } from "./checkStorage.ts"

type Keys = ReadonlyArray<Redacted.Redacted<Uint8Array>>

/** The path itself if it exists, else its nearest parent folder that exists. */
const nearestExisting = (path: string): string => (existsSync(path) ? path : nearestExisting(dirname(path)))

const isWritable = (folder: string) => {
  try {
    accessSync(folder, constants.R_OK | constants.W_OK | constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** The keys of the configuration, else the key file of the folder. Creates no key file. */
const keysOf = (path: string, encryptionKeys: Keys | undefined) =>
  encryptionKeys === undefined && !existsSync(join(path, "encryption.key"))
    ? Effect.succeed([])
    : EncryptionKeys.load({ encryptionKeys, dataDir: path })

const freeBytes = (path: string) => {
  const { bavail, bsize } = statfsSync(path)
  return bavail * bsize
}

const checkOpened = Effect.fnUntraced(function* (
  path: string,
  encryptionKeys: Keys | undefined,
  retentionDays: number | undefined,
) {
  const sql = yield* embeddedClient(yield* EmbeddedDatabase.make(path))
  const database = Effect.provideService(SqlClient.SqlClient, sql)
  const migrations = yield* database(checkMigrations)
  const stored = migrations.complete
    ? [
        yield* database(checkSecrets(yield* keysOf(path, encryptionKeys))),
        yield* database(checkStorage(retentionDays, freeBytes(path))),
      ]
    : []
  return [ok("database", `embedded, in ${path}`), migrations.check, ...stored]
})

/**
 * Checks the embedded database of DATA_DIR. Creates nothing, and does not open a database that a running service uses.
 */
export const checkEmbedded = (
  dataDir: string,
  encryptionKeys: Keys | undefined,
  retentionDays: number | undefined,
): Effect.Effect<ReadonlyArray<Check>, never, SecureRandom.SecureRandom> => {
  if (dataDir === "memory") return Effect.succeed([ok("database", "embedded, in memory: nothing is kept")])
  const path = resolve(dataDir)
  const folder = nearestExisting(path)
  if (!isWritable(folder)) {
    return Effect.succeed([
      fail(
        "database",
        `this user cannot write to ${folder}`,
        "give this user write access, or set DATA_DIR to another folder",
      ),
    ])
  }
  if (!existsSync(join(path, "postgres"))) {
    return Effect.succeed([ok("database", `embedded; the first start creates it in ${path}`)])
  }
  return checkOpened(path, encryptionKeys, retentionDays).pipe(
    Effect.scoped,
    Effect.provide(Reactivity.layer),
    Effect.catchTags({
      StartupError: (error) =>
        Effect.succeed([
          DataFolder.isInUse(error)
            ? ok("database", `embedded, in ${path}; not opened, because another process uses it`)
            : fail("database", error.message, "see docs/embedded-database.md"),
        ]),
      SqlError: (error) => Effect.succeed([fail("database", describeSqlError(error), "see docs/embedded-database.md")]),
    }),
  )
}
