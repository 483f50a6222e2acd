import { assert, describe } from "@effect/vitest"
import { Effect } from "effect"
import { readFileSync } from "node:fs"
import { join } from "node:path"
import { spawnCli } from "../support/cli.ts"
import { freshFolder, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { encryptionKey as oldKey } from "../support/server.ts"
import { makeTenant, makeVerifier } from "./support.ts"
import { slowness } from "../support/slowness.ts"

/**
 * Promise (Backup and rotation of keys): `ENCRYPTION_KEY` is rotated while the service runs, and the old key is no
 * longer needed.
 */

const newKey = Buffer.alloc(32, 7).toString("base64")

type Environment = Readonly<Record<string, string>>

const reencrypt = (env: Environment) => spawnCli(["secrets", "reencrypt", "--json"], { env })

/** A service with an endpoint; returns how to restart it and how to check its signatures. */
const begin = Effect.fnUntraced(function* (environment: Environment) {
  const verifier = yield* makeVerifier()
  let service = yield* startService(environment)
  const tenant = yield* makeTenant(() => service)
  yield* tenant.endpoint(`${verifier.url}/a`)
  let jobs = 0
  return {
    stop: Effect.suspend(() => service.end("SIGTERM")),
    start: (next: Environment) => Effect.map(startService(next), (started) => void (service = started)),
    /** Finishes a job; the verifier accepts its event only with the original secret. */
    delivers: Effect.gen(function* () {
      yield* tenant.finish(++jobs)
      yield* tenant.settled
      assert.strictEqual(verifier.receipts.length, jobs)
    }),
  }
})

// The steps of docs/encryption.md.
describe.concurrent("a rotation of ENCRYPTION_KEY", () => {
  it.live(
    "on PostgreSQL, with the service running",
    function* () {
      const DATABASE_URL = yield* freshPostgres()
      const under = (ENCRYPTION_KEY: string) => ({ DATABASE_URL, ENCRYPTION_KEY })
      const service = yield* begin(under(oldKey))
      yield* service.delivers
      yield* service.stop
      yield* service.start(under(`${newKey},${oldKey}`))

      // Without the old key the start fails with the reason, and no secret is lost.
      const early = yield* reencrypt(under(newKey))
      assert.strictEqual(early.code, 1)
      assert.match(
        early.err,
        /1 signing secrets cannot be decrypted with the keys of ENCRYPTION_KEY: [0-9A-Z]{26}\. Add their key/,
      )

      const done = yield* reencrypt(under(`${newKey},${oldKey}`))
      assert.strictEqual(done.code, 0, done.err)
      assert.deepInclude(JSON.parse(done.out).secrets[0], { what: "signing secrets", done: 1, left: 0 })
      assert.notInclude(done.out + done.err, "whsec_")
      yield* service.delivers
      yield* service.stop
      yield* service.start(under(newKey))
      yield* service.delivers
    },
    240_000 * slowness,
  )

  it.live(
    "on the embedded database, with the service stopped",
    function* () {
      const DATA_DIR = yield* freshFolder()
      const service = yield* begin({ DATA_DIR })
      yield* service.delivers
      const made = readFileSync(join(DATA_DIR, "encryption.key"), "utf8").trim()
      const both = { DATA_DIR, ENCRYPTION_KEY: `${newKey},${made}` }
      const early = yield* reencrypt(both)
      assert.deepStrictEqual([early.code, early.out], [1, ""])
      assert.include(early.err, "is in use by another process")
      yield* service.stop
      const done = yield* reencrypt(both)
      assert.strictEqual(done.code, 0, done.err)
      assert.deepInclude(JSON.parse(done.out).secrets[0], { done: 1, left: 0 })
      yield* service.start({ DATA_DIR, ENCRYPTION_KEY: newKey })
      yield* service.delivers
    },
    240_000 * slowness,
  )
})
