import { Clock, Context, Data, Effect, Layer, Metric, Stream } from "effect"
import { noOrg, RequestOrg } from "../../domain/Principal.ts"
import { ApiKeyRepository, type KeyGrant } from "../../domain/keys/ApiKeyRepository.ts"
import {
  KeyLookup,
  ValidationCounter,
  type ValidationOutcome,
  type ValidationSource,
} from "../../domain/keys/KeyLookup.ts"
import * as Batches from "../database/Batches.ts"
import { Notification, Notifications } from "../database/Notifications.ts"
import { DeletedOrgs } from "../orgs/DeletedOrgs.ts"
import { monotonicMillisOf } from "../../domain/monotonicMillis.ts"

/**
 * News of revoked keys. A key is revoked when it is deleted, or when its end moves closer. Between `Connected` and the
 * next `Disconnected` a replica receives every revocation.
 */
export type Revocation = Data.TaggedEnum<{
  Connected: {}
  Disconnected: {}
  /**
   * Every revocation from before this time of the monotonic clock, in milliseconds, has arrived before this element.
   */
  Proven: { readonly sentAt: number }
  Revoked: { readonly keyId: string }
  /** An org was deleted, or one of its projects: all its keys are revoked. */
  OwnerDeleted: { readonly orgId: string; readonly projectId: string | undefined }
}>
export const Revocation = Data.taggedEnum<Revocation>()

/** The revocations of every replica. Without this stream no key is cached. */
export const KeyRevocations = Context.Reference<Stream.Stream<Revocation>>(
  "gatehouse/infrastructure/KeyCache/KeyRevocations",
  {
    defaultValue: () => Stream.never,
  },
)

/**
 * Keys that a replica caches; 0 turns the cache off. A key with long settings counts as several. A full cache drops its
 * oldest key, or the oldest key of an org that has half of the cache and adds another.
 */
export const KeyCacheSize = Context.Reference<number>("gatehouse/infrastructure/KeyCache/KeyCacheSize", {
  defaultValue: () => 100_000,
})

/**
 * How long a proof lets memory answer, counted from when the proof was sent. A replica that was paused or cut off
 * accepts a revoked key for at most this time after the revocation.
 */
const maxProofAgeMillis = 3_000

/** Keys that one statement looks up. */
const lookUpBatchSize = 256

/** The text of a key that counts as another key, in characters: half a kilobyte is the memory of a key. */
const textPerKey = 512

/** The keys that a key counts as: one, and more for long settings. */
const weightOf = ({ allowedIps, metadata, permissions }: KeyGrant) => {
  if (metadata === null && permissions.list.length === 0 && allowedIps === null) return 1
  const text = JSON.stringify([metadata, permissions.list, allowedIps?.list]).length
  return 1 + Math.floor(text / textPerKey)
}

/** Keys in memory, by hash and by id. */
const makeMemory = (capacity: number) => {
  const grants = new Map<string, KeyGrant>()
  /** The weights of keys that count as several, by hash. */
  const heavy = new Map<string, number>()
  let weight = 0
  const hashes = new Map<string, string>()
  /** The hashes of each org's keys, oldest first. */
  const byOrg = new Map<string, Set<string>>()

  const remove = (hash: string) => {
    const grant = grants.get(hash)
    if (grant === undefined) return
    const { keyId, orgId } = grant
    grants.delete(hash)
    hashes.delete(keyId)
    weight -= heavy.get(hash) ?? 1
    heavy.delete(hash)
    const own = byOrg.get(orgId)!
    own.delete(hash)
    if (own.size === 0) byOrg.delete(orgId)
  }

  return {
    get: (hash: string) => grants.get(hash),

    put: (hash: string, grant: KeyGrant) => {
      if (capacity === 0) return
      remove(hash)
      const added = weightOf(grant)
      const isFull = () => grants.size > 0 && weight + added > capacity
      while (isFull()) {
        const own = byOrg.get(grant.orgId)
        const [oldest] = own !== undefined && own.size >= capacity / 2 ? own : grants.keys()
        remove(oldest!)
      }
      grants.set(hash, grant)
      weight += added
      if (added > 1) heavy.set(hash, added)
      hashes.set(grant.keyId, hash)
      const own = byOrg.get(grant.orgId) ?? new Set()
      byOrg.set(grant.orgId, own.add(hash))
    },

    removeKey: (keyId: string) => {
      const hash = hashes.get(keyId)
      if (hash !== undefined) remove(hash)
    },

    removeOwner: (orgId: string, projectId: string | undefined) => {
      for (const hash of byOrg.get(orgId) ?? []) {
        if (projectId === undefined || grants.get(hash)!.projectId === projectId) remove(hash)
      }
    },

    clear: () => {
      grants.clear()
      heavy.clear()
      weight = 0
      hashes.clear()
      byOrg.clear()
    },
  }
}

/**
 * Makes the cache of valid keys. It answers only while this replica certainly receives every revocation: each answer
 * compares the age of the last proof with the monotonic clock, which also runs while the process is paused. It stops
 * with its scope.
 */
export const make = Effect.gen(function* () {
  const memory = makeMemory(yield* KeyCacheSize)
  const { findByHashes } = yield* ApiKeyRepository
  const clock = yield* Clock.Clock
  const nowMillis = () => monotonicMillisOf(clock)
  let isConnected = false
  /** Memory knows every revocation from before this time of the monotonic clock. */
  let provenAt = -Infinity
  /** Changes whenever the result of a look-up in flight may have become outdated. */
  let epoch = 0

  const revoke = (keyId: string) => {
    epoch++
    memory.removeKey(keyId)
  }
  const deletedOrgs = yield* DeletedOrgs
  const revokeOwner = (orgId: string, projectId: string | undefined) => {
    epoch++
    memory.removeOwner(orgId, projectId)
    if (projectId === undefined) deletedOrgs.add(orgId)
  }
  const setConnected = (connected: boolean) => {
    epoch++
    isConnected = connected
    memory.clear()
    // What is empty is current.
    provenAt = nowMillis()
  }

  yield* (yield* KeyRevocations).pipe(
    Stream.runForEach((revocation) =>
      Effect.sync(() => {
        switch (revocation._tag) {
          case "Revoked":
            return revoke(revocation.keyId)
          case "OwnerDeleted":
            return revokeOwner(revocation.orgId, revocation.projectId)
          case "Proven":
            provenAt = revocation.sentAt
            return
          default:
            return setConnected(revocation._tag === "Connected")
        }
      }),
    ),
    Effect.ensuring(Effect.sync(() => setConnected(false))),
    Effect.forkScoped,
  )

  const findBatch = (hashes: ReadonlyArray<string>) =>
    Effect.suspend(() => {
      const startEpoch = epoch
      // Counted as a request, not as background work: requests wait for the look-up.
      return Effect.provideService(findByHashes(hashes), RequestOrg, noOrg).pipe(
        Effect.tap((found) =>
          Effect.sync(() => {
            // A revocation during the look-up may concern its result, which is then not cached.
            if (isConnected && epoch === startEpoch) found.forEach((grant, hash) => memory.put(hash, grant))
          }),
        ),
      )
    })
  const lookUp = yield* Batches.make(findBatch, lookUpBatchSize)

  return KeyLookup.of({
    forget: (keyId) => Effect.sync(() => revoke(keyId)),
    forgetOwner: (orgId, projectId) => Effect.sync(() => revokeOwner(orgId, projectId)),
    cached: (hash) => {
      const grant = memory.get(hash)
      return grant !== undefined && nowMillis() - provenAt < maxProofAgeMillis ? grant : undefined
    },
    lookUp: (hash, done) => void lookUp(hash, done),
  })
})

export const layer = Layer.effect(KeyLookup, make)

/**
 * The channel of revocations. The payload is the key's id; or `org:<id>` or `project:<id of the org>:<id>`, when all
 * keys of one are revoked.
 */
export const revocationChannel = "gatehouse_key_deleted"

/** The payload when all keys of an org, or of one of its projects, are revoked. */
export const ownerDeleted = (orgId: string, projectId?: string) =>
  projectId === undefined ? `org:${orgId}` : `project:${orgId}:${projectId}`

const toRevocation = (payload: string) => {
  const [kind, orgId, projectId] = payload.split(":")
  return orgId === undefined || (kind !== "org" && kind !== "project")
    ? Revocation.Revoked({ keyId: payload })
    : Revocation.OwnerDeleted({ orgId, projectId })
}

/** Revocations from the database's notifications. Each is sent in the transaction that revokes the key. */
export const keyRevocations = Layer.effect(
  KeyRevocations,
  Effect.map(Notifications, (notifications) =>
    notifications.listen(revocationChannel, { proofs: true }).pipe(
      Stream.map(
        Notification.$match({
          Up: () => Revocation.Connected(),
          Down: () => Revocation.Disconnected(),
          Message: ({ payload }) => toRevocation(payload),
          Proof: ({ sentAt }) => Revocation.Proven({ sentAt }),
        }),
      ),
    ),
  ),
)

const series = (outcome: ValidationOutcome, source: ValidationSource) =>
  Metric.counter("gatehouse_key_validations_total", {
    description: "Validations of keys, by outcome and by source: memory or database.",
    incremental: true,
    attributes: { outcome, source },
  })

const bySource = (outcome: ValidationOutcome) => ({
  memory: series(outcome, "memory"),
  database: series(outcome, "database"),
})
const counters = {
  valid: bySource("valid"),
  invalid: bySource("invalid"),
  forbidden: bySource("forbidden"),
  limited: bySource("limited"),
  unavailable: bySource("unavailable"),
}

/** Counts validations without a fiber. Every series exists from the start. */
export const validationMetrics = Layer.effect(
  ValidationCounter,
  Effect.map(Effect.context<never>(), (context) => {
    for (const { memory, database } of Object.values(counters)) {
      memory.updateUnsafe(0, context)
      database.updateUnsafe(0, context)
    }
    return (outcome: ValidationOutcome, source: ValidationSource) => counters[outcome][source].updateUnsafe(1, context)
  }),
)
