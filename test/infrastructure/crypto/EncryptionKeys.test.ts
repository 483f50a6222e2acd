import { assert, describe } from "@effect/vitest"
import { Effect, Logger, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Worker } from "node:worker_threads"
import { type EncryptionKeysOptions, load } from "#src/infrastructure/crypto/EncryptionKeys.ts"
import { it } from "../../support/it.ts"

const folder = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "gatehouse-keys-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true })),
)

const keys = (options: EncryptionKeysOptions) =>
  load(options).pipe(
    Effect.map((loaded) => loaded.map((key) => Buffer.from(Redacted.value(key)).toString("base64"))),
    Effect.provide(SecureRandom.layerWebCrypto),
  )

describe("EncryptionKeys", () => {
  it.effect("come from the configuration, and then no file is read or created", () =>
    Effect.gen(function* () {
      const dataDir = yield* folder
      writeFileSync(join(dataDir, "encryption.key"), "no key")
      const encryptionKeys = [Redacted.make(new Uint8Array(32)), Redacted.make(new Uint8Array(32).fill(1))]
      assert.strictEqual(yield* load({ dataDir, encryptionKeys }), encryptionKeys)
    }).pipe(Effect.provide(SecureRandom.layerWebCrypto)),
  )

  it.effect("are created once and stored in a file that only its owner can read", function* () {
    const dataDir = join(yield* folder, "made", "too")
    const [key] = yield* keys({ dataDir })
    assert.deepStrictEqual(yield* keys({ dataDir }), [key!])
    assert.deepStrictEqual(readdirSync(dataDir), ["encryption.key"])
    assert.strictEqual(readFileSync(join(dataDir, "encryption.key"), "utf8"), `${key}\n`)
    assert.strictEqual(statSync(join(dataDir, "encryption.key")).mode & 0o777, 0o600)
    assert.strictEqual(statSync(dataDir).mode & 0o777, 0o700)
    assert.notDeepEqual(yield* keys({ dataDir: yield* folder }), [key!])
  })

  it.effect("of a database in memory are not stored", function* () {
    const [key] = yield* keys({ dataDir: "memory" })
    assert.strictEqual(Buffer.from(key!, "base64").length, 32)
    assert.notDeepEqual(yield* keys({ dataDir: "memory" }), [key!])
    assert.isFalse(existsSync("memory"))
  })

  it.effect("ignore what an interrupted start left", function* () {
    const dataDir = yield* folder
    writeFileSync(join(dataDir, "encryption.key.0123456789abcdef.tmp"), "aGFsZi")
    const [key] = yield* keys({ dataDir })
    assert.strictEqual(key!.length, 44)
    assert.deepStrictEqual(yield* keys({ dataDir }), [key!])
  })

  it.effect.each([
    "",
    "\n",
    "aGFsZi",
    `${"A".repeat(43)}`,
    `${"A".repeat(44)}`,
    `${"A".repeat(43)}=${"A".repeat(43)}=`,
    "\0".repeat(5000),
  ])("refuse a file that holds %j, and do not change it", function* (text) {
    const dataDir = yield* folder
    const path = join(dataDir, "encryption.key")
    writeFileSync(path, text, { mode: 0o600 })
    const error = yield* Effect.flip(keys({ dataDir }))
    assert.include(error.message, `${path} does not contain a key`)
    assert.notInclude(error.message, "\n")
    assert.strictEqual(readFileSync(path, "utf8"), text)
  })

  it.effect("say why the file cannot be created", function* () {
    const dataDir = yield* folder
    writeFileSync(join(dataDir, "file"), "")
    const within = yield* Effect.flip(keys({ dataDir: join(dataDir, "file") }))
    assert.match(within.message, /^Cannot .*encryption\.key \(ENOTDIR\)\. \S/)
    mkdirSync(join(dataDir, "encryption.key"))
    assert.match((yield* Effect.flip(keys({ dataDir }))).message, /^Cannot read .*encryption\.key \(EISDIR\)\. \S/)
  })

  it.effect("warn when other users can read the file", function* () {
    const dataDir = yield* folder
    const lines: Array<string> = []
    const logged = Effect.provide(Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void lines.push(line))]))
    const [key] = yield* logged(keys({ dataDir }))
    assert.lengthOf(lines, 0)
    chmodSync(join(dataDir, "encryption.key"), 0o640)
    assert.deepStrictEqual(yield* logged(keys({ dataDir })), [key!])
    assert.include(lines.join(), "encryption.key. Run chmod 600")
    assert.notInclude(lines.join(), key!)
  })

  it.effect("are the same for all processes that create them at once", function* () {
    const root = yield* folder
    const [racers, rounds] = [4, 50]
    const barrier = new SharedArrayBuffer(4)
    const script = new URL("../../support/encryptionKeyRacer.ts", import.meta.url)
    const race = () =>
      new Promise<ReadonlyArray<string>>((resolve, reject) => {
        const workerData = { root, rounds, racers, barrier }
        new Worker(script, { workerData, execArgv: [] }).once("message", resolve).once("error", reject)
      })
    const results = yield* Effect.promise(() => Promise.all(Array.from({ length: racers }, race)))
    for (let round = 0; round < rounds; round++) {
      const dataDir = join(root, String(round))
      const [kept] = yield* keys({ dataDir })
      assert.deepStrictEqual(new Set(results.map((made) => made[round])), new Set([kept]))
      assert.deepStrictEqual(readdirSync(dataDir), ["encryption.key"])
    }
  })
})
