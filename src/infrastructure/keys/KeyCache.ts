import { hash } from "node:crypto"
import { Clock, Context, Data, Effect, Exit, Fiber, Layer, Metric, Schedule, Stream } from "effect"
import { Counter } from "../../domain/activity/ActivityRecorder.ts"
import { KeyMemory } from "../../domain/KeyMemory.ts"
import { noOrg, RequestOrg } from "../../domain/Principal.ts"
import { ApiKeyRepository, type ImportedHash, type KeyGrant } from "../../domain/keys/ApiKeyRepository.ts"
import {
  KeyLookup,
  noRoom,
  ValidationCounter,
  type ValidationOutcome,
  type ValidationSource,
} from "../../domain/keys/KeyChecks.ts"
import * as Batches from "../database/Batches.ts"
import { Nodes, type NodesService } from "../database/Nodes.ts"
import { Notification, Notifications } from "../database/Notifications.ts"
import { DeletedOrgs } from "../orgs/DeletedOrgs.ts"
import { keysImported, ownerDeleted, revocationChannel, rolesChanged } from "../revocations.ts"
import { startLengths } from "../../domain/keys/ImportKeys.ts"
import { networkOf } from "../../domain/clientNetworks.ts"
import * as WorkerThread from "../workerThread.ts"
import * as SlowHashes from "./SlowHashes.ts"
import type { SlowHashTask } from "./SlowHashThread.ts"
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
  /** Keys were imported. */
  Imported: {}
  /** A role of an org was changed: its keys are read again. */
  RolesChanged: { readonly orgId: string }
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

/** Keys that may be imported and that one statement looks up. */
const importedBatchSize = 64
/** How long a key waits for its slow hashes. */
const slowHashDeadline = "10 seconds"

/** What the digests of a key have found. */
interface ImportedKey {
  readonly key: string
  readonly sha256: string
  readonly startEpoch: number
  readonly grant: KeyGrant | undefined
  /** Keys whose slow hash may be that of this one. */
  readonly candidates: ReadonlyArray<ImportedHash>
}

/**
 * What a key with a slow hash may begin with, which is visible ASCII; the longest, which the fewest keys have, comes
 * first. PostgreSQL would refuse others with all that are looked up with them.
 */
const startsOf = (key: string) => {
  const lengths = Array.from({ length: startLengths.max - startLengths.min + 1 }, (_, n) => startLengths.max - n)
  const visible = /^[\x21-\x7e]*/.exec(key.slice(0, startLengths.max))![0]
  return lengths.filter((length) => length <= visible.length).map((length) => key.slice(0, length))
}

/** A key takes half a kilobyte of memory. One with texts counts as one more for each so many characters of them. */
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
  const { findByHashes, findImported, settleImported } = yield* ApiKeyRepository
  const clock = yield* Clock.Clock
  const nowMillis = () => monotonicMillisOf(clock)
  const nodes = yield* Nodes
  let isConnected = false
  /** Memory knows every revocation from before this time of the monotonic clock. */
  let provenAt = -Infinity
  /** The times of the monotonic clock at which the look-ups of keys began. */
  const readAt = new WeakMap<KeyGrant, number>()
  /** By node: since when this replica hears the revocations that are told to it, and the last proof of that. */
  const vouchers = new Map<string, { readonly since: number; provenAt: number }>()
  /** Changes whenever the result of a look-up in flight may have become outdated. */
  let epoch = 0

  const revoke = (keyId: string) => {
    epoch++
    memory.removeKey(keyId)
  }
  const deletedOrgs = yield* DeletedOrgs
  const revokeKeysOf = (orgId: string, projectId?: string) => {
    epoch++
    memory.removeOwner(orgId, projectId)
  }
  const revokeOwner = (orgId: string, projectId: string | undefined) => {
    revokeKeysOf(orgId, projectId)
    if (projectId === undefined) deletedOrgs.add(orgId)
  }
  /** `undefined`: not known. */
  let areImported: boolean | undefined
  const setImported = () => {
    epoch++
    areImported = true
  }
  const setConnected = (connected: boolean) => {
    epoch++
    areImported = undefined
    isConnected = connected
    if (!connected && nodes.all.length > 0) {
      // Until this replica hears the platform's database again, nodes report the revocations of their orgs' keys.
      provenAt = -Infinity
      return
    }
    memory.clear()
    // An empty memory holds no key that was revoked.
    provenAt = nowMillis()
  }

  /** Forgets what is revoked; calls the others when the stream is connected or not, and for each proof. */
  const follow = (
    revocations: Stream.Stream<Revocation>,
    connected: (connected: boolean) => void,
    proven: (sentAt: number) => void,
  ) =>
    revocations.pipe(
      Stream.runForEach((revocation) =>
        Effect.sync(() => {
          switch (revocation._tag) {
            case "Revoked":
              return revoke(revocation.keyId)
            case "OwnerDeleted":
              return revokeOwner(revocation.orgId, revocation.projectId)
            case "Imported":
              return setImported()
            case "RolesChanged":
              return revokeKeysOf(revocation.orgId)
            case "Proven":
              return proven(revocation.sentAt)
            default:
              return connected(revocation._tag === "Connected")
          }
        }),
      ),
      Effect.ensuring(Effect.sync(() => connected(false))),
      Effect.forkScoped,
    )
  yield* follow(yield* KeyRevocations, setConnected, (sentAt) => void (provenAt = sentAt))
  for (const { name, notifications } of nodes.all) {
    yield* follow(
      revocationsOf(notifications),
      (connected) =>
        connected ? vouchers.set(name, { since: nowMillis(), provenAt: -Infinity }) : vouchers.delete(name),
      (sentAt) => {
        const voucher = vouchers.get(name)
        if (voucher !== undefined) voucher.provenAt = sentAt
      },
    )
  }

  /**
   * A key in memory, if its org's node proves that it was not revoked: the platform's database cannot be reached, and
   * each revocation is told to the nodes, too.
   */
  const vouched = (grant: KeyGrant) => {
    const voucher = vouchers.get(nodes.known(grant.orgId) ?? "")
    if (voucher === undefined || readAt.get(grant)! < voucher.since) return undefined
    return nowMillis() - voucher.provenAt < maxProofAgeMillis ? grant : undefined
  }

  const findBatch = (hashes: ReadonlyArray<string>) =>
    Effect.suspend(() => {
      const startEpoch = epoch
      const startedAt = nowMillis()
      // Counted as a request, not as background work: requests wait for the look-up.
      return Effect.provideService(findByHashes(hashes), RequestOrg, noOrg).pipe(
        Effect.tap((found) =>
          Effect.sync(() => {
            // A revocation during the look-up may concern its result, which is then not cached.
            if (isConnected && epoch === startEpoch) found.forEach((grant, hash) => memory.put(hash, grant))
            found.forEach((grant) => void readAt.set(grant, startedAt))
          }),
        ),
      )
    })
  const lookUp = yield* Batches.make(findBatch, lookUpBatchSize)

  const thread = yield* WorkerThread.make<SlowHashTask>({
    module: "keys/SlowHashThread",
    resourceLimits: { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 8 },
    lost: "The key could not be checked; try again.",
  })

  const slowHashes = yield* SlowHashes.make((task) => thread.ask<boolean>(0, task))

  /** Replaces the hash of an imported key by its SHA-256, without waiting: on a standby, nothing is written. */
  const settle = ({ sha256, startEpoch }: ImportedKey, grant: KeyGrant) => {
    if (isConnected && epoch === startEpoch) memory.put(sha256, grant)
    return settleImported(grant.orgId, grant.keyId, sha256).pipe(
      Effect.retry({ times: 5, schedule: Schedule.exponential("200 millis") }),
      Effect.ignore,
      Effect.forkDetach,
      Effect.asVoid,
    )
  }

  /** Finds keys by their digests, and the keys whose slow hashes theirs may be. */
  const findImportedBatch = (keys: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      const startEpoch = epoch
      const startedAt = nowMillis()
      const asked = keys.map((key) => ({ key, sha256: hash("sha256", key, "hex"), sha512: hash("sha512", key, "hex") }))
      const digests = asked.flatMap(({ sha256, sha512 }) => [sha256, sha512])
      const { exist, found } = yield* findImported(digests, [...new Set(keys.flatMap(startsOf))])
      if (!exist && isConnected && epoch === startEpoch) areImported = false
      found.forEach(({ grant }) => void readAt.set(grant, startedAt))
      const byHash = new Map(found.map((one) => [one.hash, one.grant]))
      const byStart = Map.groupBy(
        found.filter(({ start }) => start !== null),
        ({ start }) => start,
      )
      const answers = new Map<string, ImportedKey>()
      for (const { key, sha256, sha512 } of asked) {
        const grant = byHash.get(sha256) ?? byHash.get(sha512)
        const candidates = grant === undefined ? startsOf(key).flatMap((start) => byStart.get(start) ?? []) : []
        const answer = { key, sha256, startEpoch, grant, candidates }
        if (grant !== undefined) {
          if (!byHash.has(sha256)) yield* settle(answer, grant)
          else if (isConnected && epoch === startEpoch) memory.put(sha256, grant)
        }
        answers.set(key, answer)
      }
      return answers
    }).pipe(Effect.provideService(RequestOrg, noOrg))
  const lookUpDigests = yield* Batches.make(findImportedBatch, importedBatchSize)

  /** Compares a key with slow hashes of several orgs, at the same time: none waits for the turns of another. */
  const findSlow = Effect.fnUntraced(
    function* (asked: ImportedKey, network: string) {
      let isRefused = false
      const compare = Effect.fnUntraced(function* ({ grant, hash: stored }: ImportedHash) {
        const task = { key: asked.key, hash: Buffer.from(stored, "hex").toString() }
        if (yield* slowHashes.ask(grant.orgId, network, task)) return yield* Effect.fail(grant)
      })
      const ofOrg = (candidates: ReadonlyArray<ImportedHash>) =>
        Effect.forEach(candidates, compare, { discard: true }).pipe(
          Effect.catchIf(
            (error) => error === noRoom,
            () => Effect.sync(() => void (isRefused = true)),
          ),
        )
      const orgs = Map.groupBy(asked.candidates, ({ grant }) => grant.orgId).values()
      yield* Effect.forEach(orgs, ofOrg, { concurrency: "unbounded", discard: true })
      return isRefused ? yield* noRoom : undefined
    },
    (search, asked) =>
      search.pipe(
        Effect.timeoutOrElse({ duration: slowHashDeadline, orElse: () => Effect.fail(noRoom) }),
        Effect.catchIf(
          (error): error is KeyGrant => "keyId" in error,
          (grant) => Effect.as(settle(asked, grant), grant),
        ),
        Effect.provideService(RequestOrg, noOrg),
      ),
  )
  const run = Effect.runForkWith(yield* Effect.context<never>())

  const lookUpImported: KeyLookup["Service"]["lookUpImported"] = (key, address, done) =>
    void lookUpDigests(key, (exit) => {
      if (Exit.isFailure(exit)) return done(Exit.failCause(exit.cause))
      const asked = exit.value!
      if (asked.candidates.length === 0) return done(Exit.succeed(asked.grant))
      run(Effect.onExit(findSlow(asked, networkOf(address)), (found) => Effect.sync(() => done(found))))
    })

  return {
    mayBeImported: () => areImported !== false || nowMillis() - provenAt >= maxProofAgeMillis,
    lookUpImported,
    imported: Effect.sync(setImported),
    forget: (keyId) =>
      Effect.suspend(() => {
        revoke(keyId)
        return tellNodes(nodes, keyId)
      }),
    forgetOwner: (orgId, projectId) =>
      Effect.suspend(() => {
        revokeOwner(orgId, projectId)
        return tellNodes(nodes, ownerDeleted(orgId, projectId))
      }),
    forgetRoles: (orgId) =>
      Effect.suspend(() => {
        revokeKeysOf(orgId)
        return tellNodes(nodes, rolesChanged(orgId))
      }),
    cached: (hash) => {
      const grant = memory.get(hash)
      if (grant === undefined) return undefined
      return nowMillis() - provenAt < maxProofAgeMillis ? grant : vouched(grant)
    },
    lookUp: (hash, done) => void lookUp(hash, done),
  } satisfies KeyLookup["Service"] & KeyMemory["Service"]
})

export const layer = Layer.effectContext(
  Effect.map(make, (cache) => Context.make(KeyLookup, cache).pipe(Context.add(KeyMemory, cache))),
)

const toRevocation = (payload: string) => {
  const [kind, orgId, projectId] = payload.split(":")
  if (payload === keysImported) return Revocation.Imported()
  if (orgId !== undefined && kind === "roles") return Revocation.RolesChanged({ orgId })
  return orgId === undefined || (kind !== "org" && kind !== "project")
    ? Revocation.Revoked({ keyId: payload })
    : Revocation.OwnerDeleted({ orgId, projectId })
}

const revocationsOf = (notifications: Notifications["Service"]) =>
  notifications.listen(revocationChannel, { proofs: true }).pipe(
    Stream.map(
      Notification.$match({
        Up: () => Revocation.Connected(),
        Down: () => Revocation.Disconnected(),
        Message: ({ payload }) => toRevocation(payload),
        Proof: ({ sentAt }) => Revocation.Proven({ sentAt }),
      }),
    ),
  )

/** Revocations from the database's notifications. Each is sent in the transaction that revokes the key. */
export const keyRevocations = Layer.effect(KeyRevocations, Effect.map(Notifications, revocationsOf))

/** How long a revocation waits for nodes, and how often it is told to a node that does not answer. */
const tellTime = "1 second"
const tellAgain = { spaced: "1 second", times: 600 } as const

/** Tells a committed revocation to the nodes, for replicas that the platform's database cannot reach. */
const tellNodes = ({ all }: NodesService, payload: string) =>
  Effect.forEach(
    all,
    ({ name, sql }) =>
      // Detached: a node that is down delays no revocation by more than a second.
      sql`SELECT pg_notify(${revocationChannel}, ${payload})`.pipe(
        Effect.tapError(() => Effect.logDebug(`The node ${name} does not hear of a revocation; trying again`)),
        Effect.retry(Schedule.max([Schedule.spaced(tellAgain.spaced), Schedule.recurs(tellAgain.times)])),
        Effect.forkDetach,
        Effect.flatMap(Fiber.join),
        Effect.timeoutOption(tellTime),
        Effect.ignore,
      ),
    { concurrency: "unbounded", discard: true },
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

/** Counts validations without a fiber, in memory. Every series exists from the start. */
export const validationMetrics = Layer.effect(
  ValidationCounter,
  Effect.zipWith(Effect.context<never>(), Counter, (context, { count }) => {
    for (const { memory, database } of Object.values(counters)) {
      memory.updateUnsafe(0, context)
      database.updateUnsafe(0, context)
    }
    return (outcome: ValidationOutcome, source: ValidationSource, orgId?: string) => {
      counters[outcome][source].updateUnsafe(1, context)
      count(orgId, "validations", outcome)
    }
  }),
)
