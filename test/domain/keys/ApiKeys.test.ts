import { assert, describe } from "@effect/vitest"
import { DateTime, Effect, Layer, Redacted, Stream } from "effect"
import { Digest, SecureRandom } from "effect/crypto"
import { TestClock } from "effect/testing"
import { createHash } from "node:crypto"
import { isWellFormed } from "#src/domain/keys/ApiKey.ts"
import * as KeyCache from "#src/infrastructure/keys/KeyCache.ts"
import { keyHash } from "#src/infrastructure/crypto/nodeCrypto.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { seededBytes } from "../../fakes/crypto.ts"
import * as fakes from "../../fakes/repositories.ts"
import { World } from "../../fakes/World.ts"
import { it } from "../../support/it.ts"
import { asAdministrator, asAnonymous, failureOf, makeTenant, nowPlus, services, unknownId } from "../support.ts"

const startOfTest = Date.UTC(2026, 10, 20, 17)
const refusal = JSON.stringify({ error: "The key is not valid.", code: "unauthorized" })
const validate = (key: string) => ApiKeys.use((keys) => asAnonymous(keys.validate(Redacted.make(key), "::1")))

/** A replica that hears of every change. */
const connected = Layer.succeed(
  KeyCache.KeyRevocations,
  Stream.concat(Stream.make(KeyCache.Revocation.Connected()), Stream.never),
)

/** Randomness whose first bytes make no key. */
const uselessAtFirst = Layer.sync(SecureRandom.SecureRandom, () => {
  const useful = seededBytes(4)
  let draws = 0
  return SecureRandom.make((size) => (size === 48 && draws++ === 0 ? new Uint8Array(size).fill(255) : useful(size)))
})

describe("creating a key", () => {
  it.effect("shows the key once, and stores only its SHA-256", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(startOfTest)
      const { orgId, projectId, orgKey, projectKey } = yield* makeTenant
      assert.isTrue(isWellFormed(orgKey.key) && isWellFormed(projectKey.key))
      assert.notStrictEqual(orgKey.key, projectKey.key)
      assert.strictEqual(orgKey.prefix, orgKey.key.slice(0, 12))
      assert.match(orgKey.id, /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/)
      const { keys } = yield* World
      const stored = keys.get(projectKey.id)!
      assert.strictEqual(stored.hash, createHash("sha256").update(projectKey.key).digest("hex"))
      assert.notInclude(JSON.stringify([...keys.values()]), projectKey.key.slice(12))
      assert.deepStrictEqual([stored.orgId, stored.row.projectId, stored.row.name], [orgId, projectId, "project"])
      assert.strictEqual(DateTime.toEpochMillis(stored.row.createdAt), startOfTest)
    }).pipe(Effect.provide(services())),
  )

  it.effect("accepts an expiresAt in the future, and no other", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(startOfTest)
      const { orgId, projectId } = yield* makeTenant
      const keys = yield* ApiKeys
      const { size } = (yield* World).keys
      for (const milliseconds of [-86_400_000, -1, 0]) {
        const input = { name: "late", expiresAt: yield* nowPlus(milliseconds) }
        for (const create of [keys.createForOrg(orgId, input), keys.createForProject({ ...input, projectId })]) {
          const body = yield* failureOf(asAdministrator(create))
          assert.match(body, /expiresAt/)
          assert.match(body, /"code":"invalid_request"/)
        }
      }
      assert.strictEqual((yield* World).keys.size, size)
      const expiresAt = yield* nowPlus(1)
      const { id } = yield* asAdministrator(keys.createForOrg(orgId, { name: "in time", expiresAt }))
      assert.deepStrictEqual((yield* World).keys.get(id)!.row.expiresAt, expiresAt)
    }).pipe(Effect.provide(services())),
  )

  it.effect("draws again when too few bytes were usable", () =>
    Effect.gen(function* () {
      const { orgKey } = yield* makeTenant
      assert.isTrue(isWellFormed(orgKey.key))
    }).pipe(Effect.provide(services({ crypto: Layer.mergeAll(Digest.layerWebCrypto, keyHash, uselessAtFirst) }))),
  )
})

describe("validating a key", () => {
  it.effect("returns the owner of the key", () =>
    Effect.gen(function* () {
      const { orgId, projectId, orgKey, projectKey } = yield* makeTenant
      assert.deepStrictEqual(yield* validate(projectKey.key), { keyId: projectKey.id, orgId, projectId })
      assert.deepStrictEqual(yield* validate(orgKey.key), { keyId: orgKey.id, orgId, projectId: "" })
    }).pipe(Effect.provide(services())),
  )

  it.effect("refuses a key from the exact moment that it expires", () =>
    Effect.gen(function* () {
      yield* TestClock.setTime(startOfTest)
      const { orgId } = yield* makeTenant
      const input = { name: "short", expiresAt: yield* nowPlus(60_000) }
      const { key } = yield* asAdministrator((yield* ApiKeys).createForOrg(orgId, input))
      for (const milliseconds of [0, 59_999]) {
        yield* TestClock.setTime(startOfTest + milliseconds)
        yield* validate(key)
      }
      for (const milliseconds of [60_000, 60_001, 86_400_000]) {
        yield* TestClock.setTime(startOfTest + milliseconds)
        assert.strictEqual(yield* failureOf(validate(key)), refusal)
      }
    }).pipe(Effect.provide(services())),
  )

  it.effect("refuses every invalid key with the same bytes", () =>
    Effect.gen(function* () {
      const { orgId, orgKey, projectKey } = yield* makeTenant
      const keys = yield* ApiKeys
      const input = { name: "short", expiresAt: yield* nowPlus(1) }
      const expired = yield* asAdministrator(keys.createForOrg(orgId, input))
      yield* TestClock.adjust(1)
      yield* asAdministrator(keys.remove(orgId, projectKey.id))
      const unknown = "svc_0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0TyBiU"
      assert.isTrue(isWellFormed(unknown))
      const mistyped = orgKey.key.replace(/.$/, (last) => (last === "A" ? "B" : "A"))
      const others = ["", "svc_", "x", unknownId, "é".repeat(46), "x".repeat(100_000), orgKey.prefix]
      for (const key of [unknown, expired.key, projectKey.key, mistyped, ` ${orgKey.key}`, ...others]) {
        assert.strictEqual(yield* failureOf(validate(key)), refusal)
        assert.strictEqual(yield* failureOf(keys.authenticate(Redacted.make(key), "127.0.0.1")), refusal)
      }
      yield* validate(orgKey.key)
    }).pipe(Effect.provide(services())),
  )

  it.effect("does not ask the database about malformed keys, once it knows that none were imported", () => {
    let queries = 0
    const counted = Layer.effect(
      ApiKeyRepository,
      ApiKeyRepository.use((repository) =>
        Effect.succeed({
          ...repository,
          findByHashes: (hashes) => (queries++, repository.findByHashes(hashes)),
          findImported: (digests, starts) => (queries++, repository.findImported(digests, starts)),
        }),
      ),
    ).pipe(Layer.provideMerge(fakes.layer))
    return Effect.gen(function* () {
      const { orgKey } = yield* makeTenant
      const malformed = [orgKey.key.toLowerCase(), `${orgKey.key}0`, "sk_live_0123456789"]
      for (const key of ["", "svc_", ...malformed]) yield* failureOf(validate(key))
      assert.strictEqual(queries, 1)
      yield* validate(orgKey.key)
      assert.strictEqual(queries, 2)
    }).pipe(Effect.provide(Layer.provide(services({ repositories: counted }), connected)))
  })
})

describe("listing keys", () => {
  it.effect("returns pages without secrets, and nothing for an unknown org", () =>
    Effect.gen(function* () {
      const { orgId, orgKey, projectKey } = yield* makeTenant
      const keys = yield* ApiKeys
      const first = yield* asAdministrator(keys.list(orgId, { limit: 1 }))
      assert.deepStrictEqual([first.keys.map(({ id }) => id), first.nextCursor], [[orgKey.id], orgKey.id])
      const second = yield* asAdministrator(keys.list(orgId, { limit: 1, cursor: orgKey.id }))
      assert.deepStrictEqual([second.keys.map(({ id }) => id), second.nextCursor], [[projectKey.id], null])
      const past = yield* asAdministrator(keys.list(orgId, { limit: 1, cursor: projectKey.id }))
      assert.deepStrictEqual(past, { keys: [], nextCursor: null })
      assert.include(yield* failureOf(asAdministrator(keys.list(unknownId, { limit: 1 }))), "no such org")
    }).pipe(Effect.provide(services())),
  )
})
