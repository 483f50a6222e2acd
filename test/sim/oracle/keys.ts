import {
  type Done,
  hasStepped,
  type History,
  isTouched,
  isUncertain,
  lamingKinds,
  succeeded,
  type Try,
  type Violation,
} from "../history.ts"
import { createPublicKey, verify } from "node:crypto"
import { epochMillis } from "../world.ts"
import { isLinearizable, type Step } from "./linearizable.ts"

/** How long after its end a replica may accept a key, in milliseconds; and after it was paused or cut off. */
const freshnessMillis = 1_000
const freshnessAfterFaultMillis = 3_100
/** How long after a fault a replica may not have what was sent meanwhile. */
const recoveryMillis = 10_000
/** How far the clocks of replicas may be from the true time, if one has stepped, and else. */
const maxClockErrorMillis = 100_000
const skewMillis = 3_000
/** Limits from this on are given out in leased quotas. */
const minLeasedLimit = 100

/** How old what a replica knows may be at a time. */
const maxAge = (history: History, { replica, start }: Try) =>
  isTouched(history, lamingKinds, replica, start - recoveryMillis, start) ? freshnessAfterFaultMillis : freshnessMillis

/** Whether an operation may have taken effect: one of its tries was not refused. */
const mayHaveRun = (one: Done) => succeeded(one) || one.tries.some(isUncertain)

interface Key {
  readonly id: string
  readonly tenant: string
  readonly made: Done
  readonly projectId: string | undefined
  /** Made elsewhere: a replica that remembers that there are no such keys refuses it until it hears of it. */
  readonly isImported: boolean
  /** The key with which a chain of rotations began. They share their limits. */
  readonly root: string
  /** When it expires, as its replacements do. */
  readonly until: number
}

const keysOf = (done: ReadonlyArray<Done>): ReadonlyMap<string, Key> => {
  const keys = new Map<string, Key>()
  for (const made of done.toSorted((one, other) => one.start - other.start)) {
    if (!succeeded(made)) continue
    const isImported = made.kind === "importKey"
    if (made.kind !== "createKey" && made.kind !== "rotateKey" && !isImported) continue
    const id = made.body.id as string
    if (isImported && keys.has(id)) continue
    const old = keys.get(made.args["keyId"] as string)
    const projectId = made.kind === "createKey" ? (made.args["projectId"] as string | undefined) : old?.projectId
    const { expiresAt } = made.args as { readonly expiresAt?: string }
    const until = old?.until ?? (expiresAt === undefined ? Infinity : Date.parse(expiresAt) - epochMillis)
    keys.set(id, { id, tenant: made.tenant, made, projectId, isImported, root: old?.root ?? id, until })
  }
  return keys
}

/**
 * `orphan`: its org or project is deleted, or it has expired. `ending`: it was rotated, and is valid until the end of a
 * grace period.
 */
type State = "on" | "off" | "gone" | "orphan" | "ending"

const states: ReadonlyArray<State> = ["on", "off", "gone", "orphan", "ending"]
const exists: ReadonlyArray<State> = ["on", "off", "orphan", "ending"]
const missing: ReadonlyArray<State> = ["gone", "orphan", "ending"]

/** Which states allow an answer, and what follows. */
const answered = (from: ReadonlyArray<State>, next: (state: State) => State) => (state: State) =>
  from.includes(state) ? [next(state)] : []

/** What is answered as long as the key is valid. */
const reads: ReadonlySet<string> = new Set(["validateKey", "exchange", "signIn", "useSession", "portalLink"])

const changeTo = (next: State) => (state: State) => (state === "ending" || state === "orphan" ? state : next)

/** What the answer to a try of an operation says about the key. */
const effectOf = (one: Done, { status }: Try): Step<State>["after"] | undefined => {
  const same = (state: State) => state
  switch (one.kind) {
    case "importKey":
      return answered(["gone", "on"], () => "on")
    case "validateKey":
    case "exchange":
    case "signIn":
    case "useSession":
    case "portalLink":
      if (status === 401) return answered(["off", "gone", "orphan", "ending"], same)
      return status === 200 || status === 429 ? answered(["on", "ending"], same) : undefined
    case "updateKey": {
      if (status === 404) return answered(missing, same)
      const { enabled } = one.args
      return enabled === undefined
        ? answered(exists, same)
        : answered(exists, changeTo(enabled === true ? "on" : "off"))
    }
    case "deleteKey":
      return status === 404 ? answered(missing, same) : answered(exists, () => "gone")
    case "rotateKey":
      return status === 404 ? answered(missing, same) : answered(exists, () => "ending")
    default:
      return answered(states, () => "orphan")
  }
}

/** The tries of everything that asks for a key or changes it, as steps of a register. */
const stepsOf = (key: Key, history: History): ReadonlyArray<Step<State>> => {
  const error = hasStepped(history, Infinity) ? maxClockErrorMillis : skewMillis
  const steps = history.done.flatMap((one): ReadonlyArray<Step<State>> => {
    const isOwner =
      (one.kind === "deleteOrg" && one.tenant === key.tenant) ||
      (one.kind === "deleteProject" && one.args["projectId"] === key.projectId)
    if (!isOwner && one.args["keyId"] !== key.id && !(key.isImported && one === key.made)) return []
    // A rotation has an idempotency key: it happens once, and a later answer repeats that of an earlier try.
    const isRepeated = one.kind === "rotateKey" && one.tries.length > 1 && succeeded(one)
    const tries = isRepeated ? [{ ...one.tries.at(-1)!, start: one.tries[0]!.start }] : one.tries
    return tries.flatMap((each): ReadonlyArray<Step<State>> => {
      const isRead = reads.has(one.kind)
      // It expires earlier at one replica than at another.
      if (each.start < key.until + error && each.end > key.until - error) return []
      if (isUncertain(each)) {
        const change = effectOf(one, { ...each, status: 200 })
        return isRead || change === undefined ? [] : [{ from: each.start, to: Infinity, after: change }]
      }
      if (each.status! >= 300 && ![401, 404, 429].includes(each.status!)) return []
      const after = effectOf(one, each)
      // Memory answers with what was true a while ago; a refusal comes from the database.
      const isRemembered = isRead && (each.status !== 401 || key.isImported)
      const from = isRemembered ? each.start - maxAge(history, each) : each.start
      return after === undefined ? [] : [{ from: Math.max(from, key.made.start), to: each.end, after, isRead }]
    })
  })
  if (key.until === Infinity) return steps
  return [...steps, { from: key.until, to: key.until, after: (state) => (state === "gone" ? [state] : ["orphan"]) }]
}

/**
 * What was answered about a key has an order that explains it, in which no replica is behind by more than the
 * bound.
 */
const register = (key: Key, history: History): ReadonlyArray<Violation> => {
  const steps = stepsOf(key, history)
  // A replacement inherits whether its key is enabled.
  const starts = { createKey: ["on"], importKey: ["gone"], rotateKey: ["on", "off"] } as const
  const all = starts[key.made.kind as keyof typeof starts]
  if (isLinearizable<State>(steps, all)) return []
  // The first answers that no order explains.
  const ends = steps.map(({ to }) => to).toSorted((one, other) => one - other)
  const at =
    ends.find(
      (end) =>
        !isLinearizable(
          steps.filter(({ from, to }) => to <= end || (to === Infinity && from < end)),
          all,
        ),
    ) ?? history.endAt
  return [{ oracle: "keys", at, what: `no order explains what was answered about ${key.id} until now` }]
}

/** A rotated key is refused after its grace period. */
const grace = (key: Key, history: History): ReadonlyArray<Violation> => {
  const rotations = history.done.filter((one) => one.kind === "rotateKey" && one.args["keyId"] === key.id)
  const rotated = rotations.find(succeeded)
  if (rotated === undefined) return []
  const millis = Number(rotated.args["overlapSeconds"]) * 1000
  const end = rotated.end + millis + (millis === 0 && !hasStepped(history, Infinity) ? 3_000 : maxClockErrorMillis)
  const late = history.done
    .filter(({ args, kind }) => kind === "validateKey" && args["keyId"] === key.id)
    .flatMap(({ tries }) => tries)
    .find((each) => each.status === 200 && each.start > end + maxAge(history, each))
  if (late === undefined) return []
  const what = `${late.replica} accepts ${key.id} ${((late.start - rotated.end) / 1000).toFixed(1)} s after its rotation`
  return [{ oracle: "keys", at: late.end, what }]
}

/** Whoever validates a key gets its id and its org. */
const owner = (key: Key, { done }: History): ReadonlyArray<Violation> =>
  done
    .filter((one) => one.kind === "validateKey" && one.args["keyId"] === key.id && one.status === 200)
    .filter(({ args, body }) => body.keyId !== key.id || body.orgId !== args["orgId"])
    .map(({ body, end }) => ({
      oracle: "keys",
      at: end,
      what: `${key.id} counts as the key ${String(body.keyId)} of ${String(body.orgId)}`,
    }))

interface Limits {
  readonly credits?: { readonly remaining?: number; readonly add?: number } | null
  readonly rateLimit?: { readonly limit: number; readonly window: number } | null
}

/** The uses of a chain of rotated keys that were allowed, or may have been, the earliest first. */
const usesOf = (root: Key, keys: ReadonlyMap<string, Key>, { done }: History) =>
  done
    .filter(({ args, kind }) => kind === "validateKey" && keys.get(args["keyId"] as string)?.root === root.id)
    .flatMap(({ tries }) => tries)
    .toSorted((one, other) => one.end - other.end)

/** The credits that a change may have given: once for each try that may have run, between which they can be used. */
const givenBy = ({ args, tries }: Done) => {
  const { credits } = args as Limits
  const times = tries.filter((each) => each.status === 200 || isUncertain(each)).length
  return times * (credits?.add ?? credits?.remaining ?? 0)
}

/** No key uses more credits than it has, all keys of a chain together; and none is left without what it has. */
const credits = (root: Key, uses: ReadonlyArray<Try>, history: History, changes: ReadonlyArray<Done>) => {
  const initial = (root.made.args as Limits).credits?.remaining ?? 0
  const most = changes.reduce((sum, one) => sum + givenBy(one), initial)
  if (most === 0) return []
  const used = uses.filter(({ status }) => status === 200)
  const last = changes.at(-1)
  // What was leased before the last change counts for nothing when its news is everywhere.
  const isLast = last !== undefined && changes.every((one) => one === last || one.end < last.start)
  const left = (last?.args as Limits | undefined)?.credits?.remaining
  if (isLast && succeeded(last) && left !== undefined) {
    const after = used.filter(({ start }) => start > last.end + recoveryMillis)
    const what = `${root.id} was used ${after.length} times after it got ${left} credits`
    if (after.length > left) return [{ oracle: "limits", at: after[left]!.end, what }]
  }
  // A use before the first change of limits to credits needs none.
  if ((root.made.args as Limits).credits == null) return []
  if (used.length > most) {
    const what = `${root.id} was used ${used.length} times with ${most} credits`
    return [{ oracle: "limits", at: used[most]!.end, what }]
  }
  const isAdded = changes.every(({ args }) => (args as Limits).credits?.add !== undefined)
  if (!isAdded || most >= minLeasedLimit) return []
  const may = uses.filter((one) => one.status === 200 || isUncertain(one))
  return uses.flatMap((one) => {
    const before = may.filter(({ start }) => start < one.end).length
    // A replica may refuse from memory for a second, and hear of an addition late.
    const known = changes.filter((change) => succeeded(change) && change.end + 2_000 < one.start)
    const sure = known.reduce((sum, { args }) => sum + (args as Limits).credits!.add!, initial)
    const isLate = known.length > 0 && isTouched(history, lamingKinds, one.replica, known[0]!.start, one.end)
    if (one.status !== 429 || before >= sure || isLate) return []
    const what = `${one.replica} refuses ${root.id}, which has used ${before} of ${sure} credits`
    return [{ oracle: "limits", at: one.end, what }]
  }) satisfies ReadonlyArray<Violation>
}

/** No key is used more often than its rate limit allows, and a small limit refuses nothing too early. */
const rates = (root: Key, uses: ReadonlyArray<Try>, history: History, changes: ReadonlyArray<Done>) => {
  const { rateLimit } = root.made.args as Limits
  if (rateLimit == null) return []
  const { limit } = rateLimit
  const millis = rateLimit.window * 1000
  const isLeased = limit >= minLeasedLimit
  const used = uses.filter(({ status }) => status === 200)
  const wrong: Array<Violation> = []
  // A clock of the database that steps fills or empties a bucket.
  const hasStep = history.faults.some(({ kind }) => kind === "database clock step")
  if (changes.length > 0 || hasStep) return wrong
  for (const [n, first] of used.entries()) {
    const later = used.slice(n).filter(({ start }) => start >= first.start)
    const tooMany = later.findIndex(({ end }, count) => {
      const windows = (end - first.start) / millis
      // A burst, and what drains meanwhile. Leased units may be used later than they were taken.
      return count + 1 > (isLeased ? (windows < 1 ? 2 * limit - 1 : Infinity) : limit * (1 + windows) + 1)
    })
    if (tooMany < 0) continue
    const within = ((later[tooMany]!.end - first.start) / 1000).toFixed(3)
    const what = `${root.id} was used ${tooMany + 1} times in ${within} s with a limit of ${limit} in ${rateLimit.window} s`
    wrong.push({ oracle: "limits", at: later[tooMany]!.end, what })
    break
  }
  if (isLeased) return wrong
  const may = uses.filter((one) => one.status === 200 || isUncertain(one))
  const early = uses.find(
    (one) =>
      one.status === 429 &&
      may.filter(({ end, start }) => start < one.end && end > one.start - millis - 500).length < limit,
  )
  if (early === undefined) return wrong
  const what = `${early.replica} refuses ${root.id}, which was used less than ${limit} times in ${rateLimit.window} s`
  return [...wrong, { oracle: "limits", at: early.end, what }]
}

/** No key uses more than its limits, and small limits are exact. */
const limits = (root: Key, keys: ReadonlyMap<string, Key>, history: History): ReadonlyArray<Violation> => {
  const changes = history.done.filter(
    (one) =>
      one.kind === "updateKey" &&
      keys.get(one.args["keyId"] as string)?.root === root.id &&
      mayHaveRun(one) &&
      ("credits" in one.args || "rateLimit" in one.args),
  )
  const uses = usesOf(root, keys, history)
  return [...credits(root, uses, history, changes), ...rates(root, uses, history, changes)]
}

/** Whether a role grants what its keys ask for; `none`: there is no such role. */
type Grant = "none" | "yes" | "no"

/** What a role grants and takes counts for its keys everywhere, within the bound of a change of a key. */
export const roles = (history: History): ReadonlyArray<Violation> => {
  const all = history.done.filter(({ args }) => args["role"] !== undefined)
  return [...Map.groupBy(all, ({ args }) => args["role"])].flatMap(([role, own]): ReadonlyArray<Violation> => {
    const steps = own.flatMap(({ args, kind, tries }) =>
      tries.flatMap((each): ReadonlyArray<Step<Grant>> => {
        const isRead = kind === "useRole"
        if (isRead && isUncertain(each)) return []
        const [from, to] = [each.start - (isRead ? maxAge(history, each) : 0), isUncertain(each) ? Infinity : each.end]
        const when = (allowed: ReadonlyArray<Grant>, next?: Grant) => (state: Grant) =>
          allowed.includes(state) ? [next ?? state] : []
        if (isRead) {
          const allowed: ReadonlyArray<Grant> =
            each.status === 200 ? ["yes"] : each.status === 403 ? ["no", "none"] : []
          return [{ from, to, isRead, after: when(allowed) }]
        }
        if (kind === "putRole") return [{ from, to, after: () => [args["grants"] === true ? "yes" : "no"] }]
        return [{ from, to, after: each.status === 404 ? when(["none"]) : when(["yes", "no"], "none") }]
      }),
    )
    if (isLinearizable<Grant>(steps, ["none"])) return []
    const at = Math.max(...own.map(({ end }) => end))
    return [{ oracle: "roles", at, what: `no order explains what the role ${String(role)} has granted` }]
  })
}

/** A token is about its key, and signed by a key that every replica shows from then on. */
export const tokens = ({ done }: History): ReadonlyArray<Violation> => {
  const shown = done.filter((one) => one.kind === "jwks" && succeeded(one))
  const parse = (part: string) =>
    JSON.parse(Buffer.from(part, "base64url").toString()) as Readonly<Record<string, string>>
  return done.flatMap(({ args, body, end, kind, status }): ReadonlyArray<Violation> => {
    if (kind !== "exchange" || status !== 200) return []
    const says = (what: string, at = end) => [
      { oracle: "tokens", at, what: `a token of ${String(args["keyId"])} ${what}` },
    ]
    const [head, claims, signature] = body.token!.split(".") as [string, string, string]
    const { org, sub } = parse(claims)
    if (sub !== args["keyId"] || org !== args["orgId"]) return says(`is about ${String(sub)} of ${String(org)}`)
    return shown
      .filter(({ start }) => start > end)
      .flatMap((list) => {
        const key = list.body.keys!.find(({ kid }) => kid === parse(head)["kid"])
        if (key === undefined)
          return says(`is signed by a key that ${list.tries.at(-1)!.replica} does not show`, list.end)
        const publicKey = createPublicKey({ key: { ...key, kty: "OKP", crv: "Ed25519" }, format: "jwk" })
        const signed = Buffer.from(`${head}.${claims}`)
        return verify(null, signed, publicKey, Buffer.from(signature, "base64url"))
          ? []
          : says("is not signed by its key")
      })
  })
}

/** No key is accepted later than the stated bound after its deletion, and no key uses more than its limit. */
export const keys = (history: History): ReadonlyArray<Violation> => {
  const known = keysOf(history.done)
  return [...known.values()].flatMap((key) => [
    ...register(key, history),
    ...grace(key, history),
    ...owner(key, history),
    ...(key.root === key.id ? limits(key, known, history) : []),
  ])
}
