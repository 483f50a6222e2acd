import { type Done, type History, isTroubled, succeeded, type Violation } from "../history.ts"

/**
 * How long after a revocation a key may still be accepted, in milliseconds: the age of a proof that lets memory answer
 * (`maxProofAgeMillis`), and half a second for what is on its way.
 */
const revocationBoundMillis = 3_500
/** How far the clocks of replicas may be from the true time. */
const maxClockErrorMillis = 100_000

/** When an operation can no longer take effect: a try without an answer may run at any later time. */
const lastEffect = ({ end, tries }: Done) => (tries.every(({ status }) => status !== undefined) ? end : Infinity)

/** Whether an operation may have taken effect: one of its tries was not refused. */
const mayHaveRun = ({ tries }: Done) =>
  tries.some(({ status }) => status === undefined || status < 300 || status >= 500)

interface Key {
  readonly id: string
  readonly tenant: string
  readonly made: Done
  readonly projectId: string | undefined
  /** The key with which a chain of rotations began. They share their limits. */
  readonly root: string
}

const keysOf = (done: ReadonlyArray<Done>): ReadonlyMap<string, Key> => {
  const keys = new Map<string, Key>()
  for (const made of done.toSorted((one, other) => one.start - other.start)) {
    if (!succeeded(made)) continue
    if (made.kind !== "createKey" && made.kind !== "rotateKey") continue
    const id = made.body.id as string
    const old = keys.get(made.args["keyId"] as string)
    const projectId = made.kind === "createKey" ? (made.args["projectId"] as string | undefined) : old?.projectId
    keys.set(id, { id, tenant: made.tenant, made, projectId, root: old?.root ?? id })
  }
  return keys
}

/** The operations that end a key for good, and how long each leaves it valid. */
const endingsOf = (key: Key, done: ReadonlyArray<Done>): ReadonlyArray<readonly [Done, number]> =>
  done.flatMap((one): ReadonlyArray<readonly [Done, number]> => {
    if (one.tenant !== key.tenant || !mayHaveRun(one)) return []
    if (one.kind === "deleteOrg") return [[one, 0]]
    if (one.kind === "deleteProject" && one.args["projectId"] === key.projectId) return [[one, 0]]
    if (one.args["keyId"] !== key.id) return []
    if (one.kind === "deleteKey") return [[one, 0]]
    if (one.kind === "rotateKey") return [[one, Number(one.args["overlapSeconds"]) * 1000 + maxClockErrorMillis]]
    return []
  })

/** No key is accepted later than the bound after its end, and none is refused before. */
const acceptance = (key: Key, keys: ReadonlyMap<string, Key>, history: History): ReadonlyArray<Violation> => {
  const uses = history.done.filter(({ args, kind }) => kind === "validateKey" && args["keyId"] === key.id)
  if (uses.length === 0) return []
  const endings = endingsOf(key, history.done)
  const changes = history.done.filter(
    (one) => one.kind === "updateKey" && one.args["keyId"] === key.id && mayHaveRun(one),
  )
  // A replacement inherits that its key is disabled.
  const disabling = history.done.filter(
    ({ args, kind }) =>
      kind === "updateKey" && args["enabled"] === false && keys.get(args["keyId"] as string)?.root === key.root,
  )
  return uses.flatMap(({ tries }) =>
    tries.flatMap(({ end, replica, start, status }): ReadonlyArray<Violation> => {
      if (status === 200) {
        const ended = endings.find(([one, grace]) => succeeded(one) && start > one.end + grace + revocationBoundMillis)
        if (ended !== undefined) {
          const late = ((start - ended[0].end) / 1000).toFixed(1)
          return [{ oracle: "keys", at: end, what: `${replica} accepts ${key.id} ${late} s after ${ended[0].kind}` }]
        }
        const disabled = changes.findLast(
          (one) => one.args["enabled"] === false && succeeded(one) && start > one.end + revocationBoundMillis,
        )
        const isEnabledAgain = changes.some(
          (one) => one.args["enabled"] === true && one.start < end && lastEffect(one) > (disabled?.start ?? 0),
        )
        if (disabled === undefined || isEnabledAgain) return []
        return [{ oracle: "keys", at: end, what: `${replica} accepts ${key.id}, which is disabled` }]
      }
      if (status !== 401 || start < key.made.end) return []
      const mayBeEnded = endings.some(([one]) => one.start < end) || disabling.some(({ start }) => start < end)
      return mayBeEnded ? [] : [{ oracle: "keys", at: end, what: `${replica} refuses ${key.id}, which is valid` }]
    }),
  )
}

/** No key uses more than its limit, all keys of a chain of rotations together. */
const limits = (root: Key, keys: ReadonlyMap<string, Key>, history: History): ReadonlyArray<Violation> => {
  const { credits, rateLimit } = root.made.args as {
    readonly credits?: { readonly remaining: number }
    readonly rateLimit?: { readonly limit: number; readonly window: number }
  }
  if (credits === undefined && rateLimit === undefined) return []
  const used = history.done
    .filter(({ args, kind }) => kind === "validateKey" && keys.get(args["keyId"] as string)?.root === root.id)
    .flatMap(({ tries }) => tries.filter(({ status }) => status === 200))
    .toSorted((one, other) => one.end - other.end)
  if (credits !== undefined && used.length > credits.remaining) {
    const what = `${root.id} was used ${used.length} times with ${credits.remaining} credits`
    return [{ oracle: "limits", at: used[credits.remaining]!.end, what }]
  }
  if (rateLimit === undefined) return []
  const millis = rateLimit.window * 1000
  for (const [n, first] of used.entries()) {
    const within = used.slice(n).filter(({ end, start }) => start >= first.start && end < first.start + millis)
    // A clock of the database that steps fills or empties a bucket.
    const hasStep = isTroubled(
      { ...history, faults: history.faults.filter(({ kind }) => kind === "database clock step") },
      "",
      first.start - millis,
      first.start + millis,
    )
    if (within.length < 2 * rateLimit.limit || hasStep) continue
    const what = `${root.id} was used ${within.length} times in ${rateLimit.window} s with a limit of ${rateLimit.limit}`
    return [{ oracle: "limits", at: within.at(-1)!.end, what }]
  }
  return []
}

/** No key is accepted later than the stated bound after its deletion, and no key uses more than its limit. */
export const keys = (history: History): ReadonlyArray<Violation> => {
  const known = keysOf(history.done)
  return [...known.values()].flatMap((key) => [
    ...acceptance(key, known, history),
    ...(key.root === key.id ? limits(key, known, history) : []),
  ])
}
