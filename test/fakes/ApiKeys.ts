import { DateTime, Effect, Layer } from "effect"
import type { ApiKey, KeyState } from "#src/domain/keys/ApiKey.ts"
import { AllowedNetworks } from "#src/domain/keys/AllowedIps.ts"
import {
  ApiKeyRepository,
  type Holder,
  holderLimitReached,
  keyExpired,
  type KeyGrant,
  keyLeaked,
  keyNotFound,
  keyReplaced,
  type NewApiKey,
  noCredits,
} from "#src/domain/keys/ApiKeyRepository.ts"
import { Conflict, InvalidRequest } from "#src/domain/Errors.ts"
import { maxKeysPerStart } from "#src/domain/keys/ImportKeys.ts"
import type { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import { changeLimits, newCounter, refilled } from "#src/domain/keys/keyLimits.ts"
import { mayAddKey, type SettingsChange } from "#src/domain/keys/KeySettings.ts"
import { PermissionSet } from "#src/domain/keys/Permission.ts"
import { orgNotFound } from "#src/domain/Principal.ts"
import { projectNotFound } from "#src/domain/projects/Projects.ts"
import { hasText, inScope, keepEntry, needRoom, pageOf, type StoredKey, World } from "./World.ts"

/** The time of the fake database. */
const clock = Effect.map(DateTime.now, DateTime.toEpochMillis)

const hasLimits = ({ credits, rateLimit }: SettingsChange) => rateLimit != null || credits != null
const changesLimits = ({ credits, rateLimit }: SettingsChange) => rateLimit !== undefined || credits !== undefined

const stateOf = ({ enabled, expiresAt, leakedAt }: ApiKey, now: number): KeyState => {
  if (leakedAt !== null) return "leaked"
  if (expiresAt !== null && expiresAt.epochMilliseconds <= now) return "expired"
  return enabled ? "valid" : "disabled"
}

/** API keys in memory. */
export const layer = Layer.effect(
  ApiKeyRepository,
  Effect.map(World, (world) => {
    const { counters, keys, orgs, projects } = world

    const needCredits = ({ counterId }: StoredKey, { credits }: SettingsChange) =>
      credits != null && credits.remaining === undefined && !counters.get(counterId)?.counter.credits
        ? Effect.fail(noCredits())
        : Effect.void

    /** The record of a key, with the limits of its counter at a time. */
    const rowOf = ({ counterId, row }: StoredKey, now: number): ApiKey => {
      const counter = counters.get(counterId)?.counter
      if (counter === undefined) return row
      const credits = counter.credits && refilled(counter.credits, now)
      const { rateLimit } = counter
      if (credits === null) return { ...row, rateLimit, credits }
      const { refill, remaining } = credits
      return { ...row, rateLimit, credits: refill === null ? { remaining } : { remaining, refill } }
    }

    const insert = (
      { hash, credits, keyPrefix, ofHolder = false, ...key }: NewApiKey,
      orgId: string,
      projectId: string | null,
      entry: AuditEntry,
      counterId = key.id,
    ) =>
      Effect.map(Effect.all([needRoom(world, "keys", orgId), clock]), ([, now]) => {
        if (keys.has(key.id) || [...keys.values()].some((stored) => stored.hash === hash)) {
          throw new Error("The id or the hash is taken")
        }
        if (otherPrefix(orgId, projectId, keyPrefix) !== undefined) throw new Error("The key has another prefix")
        keepEntry(world, orgId, entry)
        const unset = { projectId, lastUsedAt: null, leakedAt: null, replacedBy: null, imported: false, credits: null }
        keys.set(key.id, { row: { ...key, ...unset }, orgId, hash, counterId, ofHolder })
        if (hasLimits({ credits, rateLimit: key.rateLimit }) && !counters.has(counterId)) {
          counters.set(counterId, { orgId, counter: newCounter({ rateLimit: key.rateLimit, credits }, now) })
        }
      })

    /** The prefix of new keys, when they have another one. */
    const otherPrefix = (orgId: string, projectId: string | null, keyPrefix: string) => {
      const ofProject = projectId === null ? undefined : projects.get(projectId)?.row.keyPrefix
      const prefix = ofProject ?? world.keyPrefixes.get(orgId) ?? "svc"
      return prefix === keyPrefix ? undefined : prefix
    }

    const hasOwner = ({ orgId, row: { projectId } }: StoredKey) =>
      orgs.has(orgId) && (projectId === null || projects.has(projectId))
    const find = (orgId: string, keyId: string, holder: Holder) => {
      const key = keys.get(keyId)
      const isHeld = holder === undefined || key?.row.externalId === holder.externalId
      return key?.orgId === orgId && isHeld && hasOwner(key) ? key : undefined
    }

    const takeHolders = (orgId: string, holder: Holder, isRotation: boolean) => {
      const held = [...keys.values()].filter((key) => key.orgId === orgId && key.row.externalId === holder?.externalId)
      const live = isRotation ? 0 : held.filter(({ row }) => row.replacedBy === null).length
      return holder === undefined || mayAddKey(holder, held.length, live)
        ? Effect.void
        : Effect.fail(holderLimitReached(holder))
    }

    /** Changes the limits of a key. Returns the keys that have them. */
    const changeCounter = ({ counterId, orgId, row }: StoredKey, change: SettingsChange, now: number) => {
      if (!changesLimits(change)) return [row.id]
      const stored = counters.get(counterId)
      if (stored !== undefined) counters.set(counterId, { orgId, counter: changeLimits(stored.counter, change, now) })
      else if (hasLimits(change)) {
        const { credits = null, rateLimit = null } = change
        counters.set(counterId, { orgId, counter: newCounter({ rateLimit, credits }, now) })
      }
      return [...keys.values()].filter((one) => one.counterId === counterId).map((one) => one.row.id)
    }

    const grantOf = (stored: StoredKey): KeyGrant => {
      const { counterId, orgId, row } = stored
      const counter = counters.get(counterId)?.counter
      const hasCredits = counter !== undefined && counter.credits !== null
      const ofRoles = row.roles.flatMap((name) => world.roles.get(orgId)?.get(name) ?? [])
      const isLimited = hasCredits || (counter !== undefined && counter.rateLimit !== null)
      return {
        keyId: row.id,
        orgId,
        projectId: row.projectId ?? "",
        name: row.name,
        enabled: row.enabled,
        expiresAt: row.expiresAt,
        permissions: new PermissionSet([...new Set([...row.permissions, ...ofRoles])]),
        externalId: row.externalId,
        metadata: row.metadata,
        allowedIps: row.allowedIps === null ? null : new AllowedNetworks(row.allowedIps),
        isImported: stored.importHash !== undefined,
        isOfHolder: stored.ofHolder === true,
        limits: isLimited ? { counterId, version: counter!.version, rateLimit: counter!.rateLimit, hasCredits } : null,
      }
    }

    return ApiKeyRepository.of({
      insertForProject: (scope, projectId, key, entry, holder) =>
        Effect.gen(function* () {
          const orgId = projects.get(projectId)?.row.orgId
          if (orgId === undefined || !orgs.has(orgId) || !inScope(scope, orgId)) return yield* projectNotFound()
          yield* takeHolders(orgId, holder, false)
          const other = otherPrefix(orgId, projectId, key.keyPrefix)
          if (other === undefined) yield* insert(key, orgId, projectId, entry)
          return other
        }),

      insertForOrg: (orgId, key, entry, holder) =>
        Effect.gen(function* () {
          if (!orgs.has(orgId)) return yield* orgNotFound()
          yield* takeHolders(orgId, holder, false)
          const other = otherPrefix(orgId, null, key.keyPrefix)
          if (other === undefined) yield* insert(key, orgId, null, entry)
          return other
        }),

      importKeys: Effect.fnUntraced(function* (orgId, wanted, dryRun, entry) {
        const now = yield* clock
        if (!orgs.has(orgId)) return yield* orgNotFound()
        const fault = (index: number, text: string) => new InvalidRequest({ error: `keys.${index}.${text}` })
        const isForeign = ({ projectId }: { readonly projectId: string | null }) =>
          projectId !== null && projects.get(projectId)?.row.orgId !== orgId
        const foreign = wanted.findIndex(isForeign)
        if (foreign !== -1) return yield* fault(foreign, "projectId: the org has no such project.")
        const hashesOf = ({ hash, importHash = hash }: StoredKey) => [importHash, hash]
        const others = new Set([...keys.values()].filter((key) => key.orgId !== orgId).flatMap(hashesOf))
        const taken = wanted.findIndex(({ hash }) => others.has(hash))
        if (taken !== -1) return yield* new Conflict({ error: `keys.${taken}.hash: a key of another org has it.` })
        const idOf = new Map([...keys.values()].flatMap((key) => hashesOf(key).map((hash) => [hash, key.row.id])))
        const added = wanted.filter(({ hash, id }) => !idOf.has(hash) && idOf.set(hash, id) !== undefined)
        const starts = [...keys.values()].map(({ importStart }) => importStart)
        for (const { id, importStart } of added) {
          if (importStart === null) continue
          if (starts.filter((start) => start === importStart).length === maxKeysPerStart) {
            const text = `start: ${maxKeysPerStart} other keys with a slow hash begin with it. Take more characters.`
            return yield* fault(
              wanted.findIndex((key) => key.id === id),
              text,
            )
          }
          starts.push(importStart)
        }
        if (added.length > 0) yield* needRoom(world, "keys", orgId, added.length)
        if (!dryRun && added.length > 0) {
          keepEntry(world, orgId, { ...entry, details: { ...entry.details, keys: added.length } })
          for (const { credits, hash, importStart, keyPrefix: _, projectId, ...key } of added) {
            const none = { lastUsedAt: null, leakedAt: null, replacedBy: null, credits: null }
            const stored = { orgId, hash, counterId: key.id, importHash: hash, importStart }
            keys.set(key.id, { ...stored, row: { ...key, ...none, projectId, imported: true } })
            if (hasLimits({ credits, rateLimit: key.rateLimit })) {
              counters.set(key.id, { orgId, counter: newCounter({ rateLimit: key.rateLimit, credits }, now) })
            }
          }
        }
        return wanted.map(({ hash, id }) => ({ id: idOf.get(hash)!, isNew: idOf.get(hash) === id }))
      }),

      findImported: (digests, starts) =>
        Effect.sync(() => {
          const imported = [...keys.values()].filter(({ importHash }) => importHash !== undefined)
          const found = imported.filter(
            (key) =>
              hasOwner(key) &&
              (digests.includes(key.hash) || (key.importStart != null && starts.includes(key.importStart))),
          )
          return {
            exist: imported.length > 0,
            found: found.map((key) => ({ hash: key.hash, start: key.importStart ?? null, grant: grantOf(key) })),
          }
        }),

      settleImported: (orgId, keyId, sha256) =>
        Effect.sync(() => {
          const stored = keys.get(keyId)
          if (stored?.orgId === orgId && stored.importHash !== undefined) {
            keys.set(keyId, { ...stored, hash: sha256, importStart: null })
          }
        }),

      remove: (orgId, keyId, entry, holder) =>
        Effect.suspend(() => {
          const stored = find(orgId, keyId, holder)
          if (stored === undefined) return Effect.fail(keyNotFound())
          keepEntry(world, orgId, entry)
          keys.delete(keyId)
          if (![...keys.values()].some(({ counterId }) => counterId === stored.counterId)) {
            counters.delete(stored.counterId)
          }
          return Effect.void
        }),

      update: Effect.fnUntraced(function* (orgId, keyId, change, entry, holder) {
        const now = yield* clock
        const old = find(orgId, keyId, holder)
        if (old === undefined) return yield* keyNotFound()
        if (old.row.leakedAt !== null && change.enabled === true) return yield* keyLeaked()
        yield* needCredits(old, change)
        keepEntry(world, orgId, entry)
        const changed = changeCounter(old, change, now)
        const { credits: _, ...columns } = change
        const stored = { ...old, row: { ...old.row, ...columns } }
        keys.set(keyId, stored)
        return { key: rowOf(stored, now), changed }
      }),

      disableLeaked: Effect.fnUntraced(function* (hash, entryOf) {
        const leakedAt = yield* DateTime.now
        const stored = [...keys.values()].find((one) => one.hash === hash && hasOwner(one))
        if (stored === undefined) return undefined
        const { orgId, row } = stored
        const isNew = row.leakedAt === null
        if (isNew) {
          keepEntry(world, orgId, yield* entryOf(row.id))
          keys.set(row.id, { ...stored, row: { ...row, enabled: false, leakedAt } })
        }
        return { orgId, keyId: row.id, isNew }
      }),

      rotate: Effect.fnUntraced(function* (orgId, keyId, replacement, entry, holder) {
        const { id, prefix, keyPrefix, hash, now, expiresAt, oldKeyUntil, settings } = replacement
        const millis = yield* clock
        const old = find(orgId, keyId, holder)
        if (old === undefined) return yield* keyNotFound()
        const { name, projectId, expiresAt: oldExpiry } = old.row
        if (old.row.replacedBy !== null) return yield* keyReplaced()
        if (oldExpiry !== null && DateTime.isLessThanOrEqualTo(oldExpiry, now)) return yield* keyExpired()
        const other = otherPrefix(orgId, projectId, keyPrefix)
        if (other !== undefined) return { name, otherPrefix: other }
        yield* takeHolders(orgId, holder, true)
        const { allowedIps, enabled, externalId, metadata, permissions, rateLimit, roles } = rowOf(old, millis)
        const inherited = { allowedIps, externalId, metadata, permissions, rateLimit, roles, credits: null }
        yield* needCredits(old, settings)
        const key = { ...inherited, enabled: enabled || old.row.leakedAt !== null, ...settings, credits: null }
        yield* needRoom(world, "keys", orgId)
        changeCounter(old, settings, millis)
        const counterId = counters.has(old.counterId) ? old.counterId : id
        const times = { createdAt: now, expiresAt: expiresAt === undefined ? oldExpiry : expiresAt }
        const detailed = { ...entry, details: { name, ...entry.details } }
        const made = { ...key, ...times, id, name, prefix, keyPrefix, hash, ofHolder: old.ofHolder === true }
        yield* insert(made, orgId, projectId, detailed, counterId)
        const ends = oldExpiry === null ? oldKeyUntil : DateTime.min(oldExpiry, oldKeyUntil)
        keys.set(keyId, { ...old, row: { ...old.row, expiresAt: ends, replacedBy: id } })
        return { name, otherPrefix: undefined }
      }),

      list: (orgId, page, { order, state, text, ...columns } = {}) =>
        Effect.map(clock, (now) => {
          const own = [...keys.values()].filter(
            (stored) =>
              stored.orgId === orgId &&
              hasOwner(stored) &&
              hasText(text, stored.row.name, stored.row.externalId, stored.row.prefix, stored.row.id) &&
              (state === undefined || stateOf(stored.row, now) === state) &&
              Object.entries(columns).every(
                ([name, value]) => value === undefined || stored.row[name as keyof typeof columns] === value,
              ),
          )
          return pageOf(
            own.map((stored) => rowOf(stored, now)),
            (row) => row.id,
            page,
            order === "newest" ? -1 : 1,
          )
        }),

      find: (orgId, keyId, holder) =>
        Effect.flatMap(clock, (now) => {
          const stored = find(orgId, keyId, holder)
          return stored === undefined ? Effect.fail(keyNotFound()) : Effect.succeed(rowOf(stored, now))
        }),

      findByHashes: (hashes) =>
        Effect.sync(() => {
          const asked = [...keys.values()].filter((stored) => hashes.includes(stored.hash) && hasOwner(stored))
          return new Map(asked.map((stored) => [stored.hash, grantOf(stored)]))
        }),

      touch: (usage) =>
        Effect.sync(() => {
          for (const [keyId, at] of usage) {
            const stored = keys.get(keyId)
            if (stored === undefined) continue
            const last = stored.row.lastUsedAt
            if (last !== null && !DateTime.isGreaterThan(at, last)) continue
            keys.set(keyId, { ...stored, row: { ...stored.row, lastUsedAt: at } })
          }
        }),
    })
  }),
)
