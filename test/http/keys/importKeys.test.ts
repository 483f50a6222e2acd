import { expect } from "@effect/vitest"
import { hashSync } from "bcryptjs"
import { Effect, Fiber } from "effect"
import { argon2Sync, createHash, randomBytes, scryptSync } from "node:crypto"
import { layer } from "../../support/it.ts"
import { adminToken, embedded, guarded, onPostgres, TestServer } from "../../support/server.ts"
import { until } from "../../support/wait.ts"
import { must } from "../operations.ts"

/**
 * Promise (Settings of keys): Imported keys are valid from the answer on, by five hashes; the same hash again changes
 * nothing; a fault names the key and imports none; two imports at once import each key once.
 */

const as = adminToken
const digest = (algorithm: string, key: string, encoding: "hex" | "base64" | "base64url" = "hex") =>
  createHash(algorithm).update(key).digest(encoding)
const newKey = () => `sk_live_${randomBytes(18).toString("base64url")}`
const plain = (bytes: Buffer) => bytes.toString("base64").replace(/=+$/, "")

const slow = {
  bcrypt: (key: string) => hashSync(key, 4),
  scrypt: (key: string) => {
    const salt = randomBytes(16)
    return `$scrypt$ln=10,r=8,p=1$${plain(salt)}$${plain(scryptSync(key, salt, 32, { N: 1024, r: 8, p: 1 }))}`
  },
  argon2id: (key: string) => {
    const nonce = randomBytes(16)
    const cost = { memory: 256, passes: 1, parallelism: 1, tagLength: 32 }
    return `$argon2id$v=19$m=256,t=1,p=1$${plain(nonce)}$${plain(argon2Sync("argon2id", { message: key, nonce, ...cost }))}`
  },
}
type Slow = keyof typeof slow

interface Imported {
  readonly imported: ReadonlyArray<{ readonly index: number; readonly id: string | null }>
  readonly existing: ReadonlyArray<{ readonly index: number; readonly id: string }>
}

/** An org, and requests about its keys. */
const makeOrg = Effect.gen(function* () {
  const { send } = yield* TestServer
  const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "o" }, as })
  const path = `/api/v0/orgs/${orgId}/keys`
  const post = (keys: ReadonlyArray<object>, more: object = {}, credential: string = as) =>
    send("POST", `${path}/import`, { json: { keys, ...more }, as: credential })
  const answer = (key: string, use: object = {}) => send("POST", "/api/v0/keys/validate", { json: { key, ...use }, as })
  return {
    orgId,
    path,
    post,
    send,
    run: (keys: ReadonlyArray<object>, more: object = {}) =>
      Effect.map(post(keys, more), ({ json, status, text }) => {
        expect(status, text).toBe(200)
        return json as Imported
      }),
    refusal: (keys: ReadonlyArray<object>) =>
      Effect.map(post(keys), ({ json, status }) => [status, (json as { readonly error: string }).error] as const),
    validate: (key: string, use: object = {}) => Effect.map(answer(key, use), ({ status }) => status),
    details: (key: string) => Effect.map(answer(key, { details: true }), ({ json }) => json as object),
  }
})

for (const [name, environment] of [
  ["embedded", { ...guarded, ...embedded }],
  ["postgres", onPostgres(guarded)],
] as const) {
  layer(TestServer.layer(environment), { excludeTestServices: true })(`imported keys, ${name}`, (it) => {
    it.effect("are valid from the answer on, by any hash, with their settings; again they exist", function* () {
      const { details, orgId, path, run, send, validate } = yield* makeOrg
      const { projectId } = yield* must(send, "POST", "/api/v0/projects", { json: { name: "p", orgId }, as })
      const keys = Array.from({ length: 8 }, newKey)
      const [algorithms, encodings] = [
        ["sha256", "sha512"],
        ["hex", "base64", "base64url"],
      ] as const
      const fast = algorithms.flatMap((algorithm, a) =>
        encodings.map((encoding, e) => ({
          algorithm,
          encoding,
          hash: digest(algorithm, keys[a * 3 + e]!, encoding),
          name: "fast",
          ...{ externalId: `c${e}`, permissions: ["files.*"], metadata: { n: e }, projectId },
          credits: { remaining: 1_000 },
          rateLimit: { limit: 1_000, window: 60 },
        })),
      )
      const own = newKey()
      const upper = {
        algorithm: "sha256",
        hash: digest("sha256", own).toUpperCase(),
        name: "short",
        start: own.slice(0, 9),
      }
      const asked = [...fast, upper]
      const { existing, imported } = yield* run(asked)
      expect([imported.map(({ index }) => index), existing]).toEqual([[0, 1, 2, 3, 4, 5, 6], []])
      // From the database, then, for SHA-512, by the SHA-256 that replaced it, and from memory.
      for (const key of [...keys.slice(0, 6), own, ...keys.slice(0, 6), own]) expect(yield* validate(key)).toBe(200)
      expect(yield* validate(keys[0]!, { permissions: ["files.read"] })).toBe(200)
      expect(yield* validate(keys[4]!, { permissions: ["models.read"] })).toBe(403)
      expect(yield* details(keys[4]!)).toMatchObject({
        orgId,
        projectId,
        keyId: imported[4]!.id,
        name: "fast",
        externalId: "c1",
        metadata: { n: 1 },
        credits: expect.any(Number),
      })
      expect(yield* run(asked)).toEqual({ imported: [], existing: imported })
      const shown = yield* must(send, "GET", `${path}/${imported[6]!.id}`, { as })
      expect(shown).toMatchObject({ name: "short", prefix: own.slice(0, 9), projectId: null })
      // Revoked as any other.
      yield* must(send, "PATCH", `${path}/${imported[0]!.id}`, { json: { enabled: false }, as })
      yield* must(send, "DELETE", `${path}/${imported[4]!.id}`, { as })
      expect([yield* validate(keys[0]!), yield* validate(keys[4]!), yield* validate(keys[1]!)]).toEqual([401, 401, 200])
      const rotated = yield* must(send, "POST", `${path}/${imported[1]!.id}/rotate`, { json: {}, as })
      expect(rotated["key"]).toMatch(/^svc_/)
      for (const junk of [newKey(), keys[1]!.slice(0, -1), "x", "x".repeat(400)])
        expect(yield* validate(junk)).toBe(401)
    })

    it.effect("padding of base64 is optional, for every hash", function* () {
      const { run, validate } = yield* makeOrg
      const padded = (text: string) => text + "=".repeat((4 - (text.length % 4)) % 4)
      const bare = (text: string) => text.replaceAll("=", "")
      for (const algorithm of ["sha256", "sha512"] as const) {
        for (const encoding of ["base64", "base64url"] as const) {
          const [one, other] = [newKey(), newKey()]
          const asked = (key: string, form: (text: string) => string) => [
            { algorithm, encoding, hash: form(digest(algorithm, key, encoding)), name: "k" },
          ]
          const ids = [...(yield* run(asked(one, padded))).imported, ...(yield* run(asked(other, bare))).imported]
          expect(ids, `${algorithm} ${encoding}`).toHaveLength(2)
          expect((yield* run(asked(one, bare))).existing[0]!.id).toBe(ids[0]!.id)
          for (const key of [one, other]) expect(yield* validate(key)).toBe(200)
        }
      }
      for (const algorithm of ["scrypt", "argon2id"] as const) {
        const start = `sk_${randomBytes(4).toString("hex")}`
        const key = `${start}${randomBytes(16).toString("hex")}`
        const hash = slow[algorithm](key)
        const parts = hash.split("$")
        const form = [...parts.slice(0, -2), ...parts.slice(-2).map(padded)].join("$")
        const { imported } = yield* run([{ algorithm, hash: form, start, name: "k" }])
        expect((yield* run([{ algorithm, hash, start, name: "k" }])).existing).toEqual(imported)
        expect(yield* validate(key), algorithm).toBe(200)
      }
    })

    it.effect("slow hashes are found by what the key begins with, and replaced at the first success", function* () {
      const { run, send, validate } = yield* makeOrg
      for (const algorithm of Object.keys(slow) as ReadonlyArray<Slow>) {
        const start = `sk_${randomBytes(4).toString("hex")}`
        const keys = Array.from({ length: 3 }, () => `${start}${randomBytes(16).toString("hex")}`)
        const asked = keys.map((key, n) => ({ algorithm, hash: slow[algorithm](key), start, name: `${n}` }))
        const { imported } = yield* run(asked)
        expect(imported, algorithm).toHaveLength(3)
        expect(yield* validate(`${start}${"0".repeat(32)}`), algorithm).toBe(401)
        for (const key of keys) expect(yield* validate(key), algorithm).toBe(200)
        // Twenty at once: each is answered, and none by another's key.
        const ids = yield* Effect.forEach(
          Array.from({ length: 20 }, (_, n) => n % 3),
          (n) =>
            Effect.map(
              send("POST", "/api/v0/keys/validate", { json: { key: keys[n]! }, as }),
              ({ json }) => (json as { keyId?: string }).keyId === imported[n]!.id,
            ),
          { concurrency: 20 },
        )
        expect(ids, algorithm).toEqual(Array.from({ length: 20 }, () => true))
        expect((yield* run(asked)).existing, algorithm).toEqual(imported)
      }
    })

    it.effect("the SHA-256 of a key that has another hash and was used exists, in a dry run too", function* () {
      const [one, two] = [yield* makeOrg, yield* makeOrg]
      const hashes = { ...slow, sha512: (key: string) => digest("sha512", key) }
      for (const algorithm of Object.keys(hashes) as ReadonlyArray<keyof typeof hashes>) {
        const start = `sk_${randomBytes(4).toString("hex")}`
        const key = `${start}${randomBytes(16).toString("hex")}`
        const { imported } = yield* one.run([{ algorithm, hash: hashes[algorithm](key), start, name: "k" }])
        expect(yield* one.validate(key), algorithm).toBe(200)
        const bySha256 = [
          { algorithm: "sha256", hash: digest("sha256", newKey()), name: "new" },
          { algorithm: "sha256", hash: digest("sha256", key), name: "k" },
        ]
        const existing = [{ index: 1, id: imported[0]!.id }]
        // The first use is written some time after its answer.
        const dry = yield* until(
          "the hash is replaced",
          one.run(bySha256, { dryRun: true }),
          (answer) => answer.existing.length === 1,
        )
        expect(dry.existing, algorithm).toEqual(existing)
        expect(yield* two.refusal(bySha256)).toEqual([409, "keys.1.hash: a key of another org has it."])
        expect(yield* one.run(bySha256), algorithm).toMatchObject({ imported: [{ index: 0 }], existing })
        expect(yield* one.validate(key), algorithm).toBe(200)
      }
    })

    it.effect("slow hashes delay no digest and no bad key, and have room for a few of an address", function* () {
      const [one, two] = [yield* makeOrg, yield* makeOrg]
      const start = `sk_${randomBytes(4).toString("hex")}`
      const salt = randomBytes(16)
      const dear = scryptSync(start, salt, 32, { N: 2 ** 16, r: 8, p: 1, maxmem: 2 ** 28 })
      const hash = `$scrypt$ln=16,r=8,p=1$${plain(salt)}$${plain(dear)}`
      yield* one.run([{ algorithm: "scrypt", hash, start, name: "dear" }])
      const keys = Array.from({ length: 20 }, newKey)
      yield* two.run(
        keys.map((key, n) => {
          const algorithm = n % 2 === 0 ? "sha256" : "sha512"
          return { algorithm, hash: digest(algorithm, key), name: "k" }
        }),
      )
      const refused: Array<number> = []
      const flood = yield* Effect.forkChild(
        Effect.forEach(
          Array.from({ length: 40 }, (_, n) => n),
          (n) => Effect.map(one.validate(`${start}${"0".repeat(20)}${n}`), (status) => void refused.push(status)),
          { concurrency: 40 },
        ),
      )
      // More than an address has room for, at once.
      yield* until(
        "some find no room",
        Effect.sync(() => refused.length),
        (length) => length >= 20,
      )
      expect(new Set(refused)).toEqual(new Set([503]))
      for (const key of keys) expect(yield* two.validate(key)).toBe(200)
      expect([yield* two.validate(newKey()), yield* two.validate(newKey().slice(3))]).toEqual([401, 401])
      expect((yield* two.send("GET", two.path, { as: `${start}${"1".repeat(38)}` })).status).toBe(401)
      yield* Fiber.interrupt(flood)
    })

    it.effect("bad input names the key and imports nothing", function* () {
      const { path, refusal, post, send } = yield* makeOrg
      const good = { algorithm: "sha256", hash: digest("sha256", newKey()), name: "k" }
      const bcryptHash = slow.bcrypt(newKey())
      const cases: ReadonlyArray<readonly [object, string]> = [
        [{ ...good, hash: good.hash.slice(1) }, "keys.1.hash must be the 32 bytes of sha256 in hex."],
        [{ ...good, hash: `${good.hash.slice(1)}g` }, "keys.1.hash must be the 32 bytes of sha256 in hex."],
        [{ ...good, algorithm: "sha512" }, "keys.1.hash must be the 64 bytes of sha512 in hex."],
        [{ ...good, encoding: "base64" }, "keys.1.hash must be the 32 bytes of sha256 in base64."],
        [{ ...good, algorithm: "md5" }, "one of sha256, sha512, bcrypt, scrypt, argon2id"],
        [{ ...good, algorithm: "bcrypt" }, "keys.1.hash must be $2b$12$ and 53 characters"],
        [{ ...good, algorithm: "bcrypt", hash: bcryptHash }, "keys.1.start is needed for bcrypt"],
        [{ ...good, algorithm: "bcrypt", hash: bcryptHash.replace("$04$", "$31$"), start: "sk_live" }, "4 to 14"],
        [{ ...good, start: "abc" }, "4 to 16 visible"],
        [{ ...good, expiresAt: "2020-01-01T00:00:00Z" }, "keys.1.expiresAt must be a time in the future."],
        [{ ...good, projectId: "none" }, "keys.1.projectId: the org has no such project."],
        [{ ...good, roles: ["none"] }, "roles: the org has no role none."],
        [{ ...good, name: "" }, "name"],
        [{ ...good, permission: [] }, "permission"],
      ]
      for (const [bad, error] of cases) {
        const [status, text] = yield* refusal([good, bad])
        expect([status, text], JSON.stringify(bad)).toEqual([400, expect.stringContaining(error)])
      }
      for (const keys of [[], Array.from({ length: 1_001 }, () => good)]) {
        expect((yield* refusal(keys))[1]).toContain("1 to 1,000")
      }
      expect((yield* must(send, "GET", path, { as }))["keys"]).toEqual([])
      const { key } = yield* must(send, "POST", path, { json: { name: "org key" }, as })
      expect((yield* post([good], {}, key!)).status).toBe(403)
      expect((yield* send("POST", "/api/v0/orgs/none/keys/import", { json: { keys: [good] }, as })).status).toBe(404)
    })

    it.effect("a dry run imports nothing; two imports at once import each key once; limits hold for all", function* () {
      const one = yield* makeOrg
      const { orgId, refusal, run, send, validate } = one
      const keys = Array.from({ length: 50 }, newKey)
      const asked = keys.map((key) => ({ algorithm: "sha256", hash: digest("sha256", key), name: "k" }))
      const dry = yield* run([...asked, asked[0]!], { dryRun: true })
      // Seen failing: the key that is there twice had the id of a key that was never made.
      expect([dry.imported.length, dry.imported[0]!.id, dry.existing]).toEqual([50, null, [{ index: 50, id: null }]])
      expect(yield* validate(keys[0]!)).toBe(401)
      yield* must(send, "PATCH", `/api/v0/orgs/${orgId}`, { json: { limits: { keys: 49 } }, as })
      // Seen failing: the dry run said that all could be imported.
      for (const more of [{}, { dryRun: true }]) {
        const { json, status } = yield* one.post(asked, more)
        expect([status, json]).toMatchObject([409, { code: "limit_reached" }])
      }
      expect(yield* validate(keys[0]!)).toBe(401)
      yield* must(send, "PATCH", `/api/v0/orgs/${orgId}`, { json: { limits: { keys: 50 } }, as })
      expect((yield* run(asked, { dryRun: true })).imported).toHaveLength(50)
      const both = yield* Effect.all([run(asked), run(asked.toReversed())], { concurrency: 2 })
      expect(both.map(({ imported }) => imported.length).toSorted()).toEqual([0, 50])
      expect(yield* validate(keys[49]!)).toBe(200)
      const two = yield* makeOrg
      expect(yield* two.refusal(asked.slice(3, 4))).toEqual([409, "keys.0.hash: a key of another org has it."])
      const { entries } = (yield* must(send, "GET", `/api/v0/orgs/${orgId}/audit`, { as })) as unknown as {
        readonly entries: ReadonlyArray<{ readonly action: string; readonly details: object }>
      }
      const imports = entries.filter(({ action }) => action === "key.import")
      expect(imports.map(({ details }) => details)).toEqual([{ keys: 50 }])
      // At most 20 slow hashes have one start.
      const hash = slow.bcrypt("x".repeat(12))
      const many = Array.from({ length: 21 }, (_, n) => ({
        ...{ algorithm: "bcrypt", name: `${n}`, start: `start${name}` },
        hash: `${hash.slice(0, -2)}${String(n).padStart(2, "0")}`,
      }))
      yield* must(send, "PATCH", `/api/v0/orgs/${orgId}`, { json: { limits: { keys: 100 } }, as })
      expect((yield* refusal(many))[1]).toContain("keys.20.start: 20 other keys")
    })

    it.effect("an import while the org is deleted leaves no valid key", function* () {
      const { orgId, post, send, validate } = yield* makeOrg
      const keys = Array.from({ length: 200 }, newKey)
      const asked = keys.map((key) => ({ algorithm: "sha256", hash: digest("sha256", key), name: "k" }))
      const remove = send("DELETE", `/api/v0/orgs/${orgId}`, { as })
      const [imported, removed] = yield* Effect.all([post(asked), remove], { concurrency: 2 })
      expect([200, 404]).toContain(imported.status)
      expect(removed.status).toBe(200)
      expect([yield* validate(keys[0]!), yield* validate(keys[199]!)]).toEqual([401, 401])
      expect((yield* post(asked)).status).toBe(404)
    })

    // Seen failing: a 500, also for the keys of others that were looked up with it.
    it.effect("a key with a NUL is a 401, and does not disturb the keys that are looked up with it", function* () {
      const { run, send, validate } = yield* makeOrg
      const keys = Array.from({ length: 20 }, newKey)
      yield* run(keys.map((key) => ({ algorithm: "sha256", hash: digest("sha256", key), name: "k" })))
      const odd = Array.from({ length: 20 }, (_, n) => validate(`abcd\0${n}-efghijkl`))
      const answers = yield* Effect.all([...odd, ...keys.map((key) => validate(key))], { concurrency: "unbounded" })
      expect(answers).toEqual([...odd.map(() => 401), ...keys.map(() => 200)])
      const token = yield* send("POST", "/api/v0/keys/token", { json: { key: "abcd\0efghijkl" }, as })
      expect(token.status).toBe(401)
    })

    it.effect("are no credentials of Gatehouse, and a text without a hash stays a 401", function* () {
      const { path, run, send, validate } = yield* makeOrg
      const key = `sk_live_${"k".repeat(42)}`
      yield* run([{ algorithm: "sha256", hash: digest("sha256", key), name: "k" }])
      expect([yield* validate(key), yield* validate(key)]).toEqual([200, 200])
      expect((yield* send("GET", path, { as: key })).status).toBe(401)
      expect((yield* send("POST", "/v1/jobs/list", { json: {}, headers: { "x-api-key": key } })).status).toBe(401)
    })
  })
}
