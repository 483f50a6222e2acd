import { Deferred, type Duration, Effect, type Scope } from "effect"
import { Unavailable } from "./Errors.ts"

/** Bytes taken from a budget until the scope closes. */
export interface Lease {
  /** Sets how many bytes this takes now that more is known. Does not wait, so the budget may be exceeded. */
  readonly resize: (bytes: number) => void
}

interface Waiter {
  /** Its place in the order of all that came. */
  readonly place: number
  readonly bytes: number
  readonly granted: Deferred.Deferred<void>
}

/** What one owner has taken, and its requests that wait. */
interface Share {
  used: number
  readonly waiting: Set<Waiter>
}

export interface ByteBudgetOptions {
  /** How many bytes may be in use at one time. */
  readonly bytes: number
  /** How many of them one owner may have in more than one request; default: all. */
  readonly perOwner?: number
  /** How long a request waits for its bytes; then it is a 503. */
  readonly deadline: Duration.Input
  /** How many requests of one owner may wait; more are a 503 at once. */
  readonly maxWaiting: number
  /** The sentence of the 503. */
  readonly error: string
  /** Frees some bytes that nobody uses at the moment; `false` when there are none. */
  readonly reclaim?: () => boolean
}

/**
 * Bytes that requests may have in use at one time, shared by owners: requests that find too few wait. Free bytes go to
 * the owner who uses the least. One request that is larger than all of the budget has all of it for itself.
 */
export const make = (options: ByteBudgetOptions) => {
  const { bytes: total, perOwner = Infinity, deadline, maxWaiting, error, reclaim = () => false } = options
  // Bounded by the requests that hold or wait.
  const shares = new Map<string, Share>()
  const refused = Effect.fail(new Unavailable({ error }))
  let used = 0
  let arrived = 0
  let granting = false

  const shareOf = (owner: string): Share => {
    const share = shares.get(owner) ?? { used: 0, waiting: new Set() }
    shares.set(owner, share)
    return share
  }
  const add = (owner: string, bytes: number) => {
    const share = shareOf(owner)
    share.used += bytes
    used += bytes
    if (share.used === 0 && share.waiting.size === 0) shares.delete(owner)
  }

  /** The first waiter of the owner who uses the least, of those whose share has room for it; of equal owners, the first. */
  const next = () => {
    let least: { readonly owner: string; readonly share: Share; readonly waiter: Waiter } | undefined
    for (const [owner, share] of shares) {
      const [waiter] = share.waiting
      if (waiter === undefined || (share.used > 0 && share.used + waiter.bytes > perOwner)) continue
      const order = least === undefined ? -1 : share.used - least.share.used || waiter.place - least.waiter.place
      if (order < 0) least = { owner, share, waiter }
    }
    return least
  }
  const grant = () => {
    // What is reclaimed is returned to the budget, and so comes here again.
    if (granting) return
    granting = true
    for (let chosen = next(); chosen !== undefined; chosen = next()) {
      const { owner, share, waiter } = chosen
      while (used + waiter.bytes > total && reclaim());
      if (used + waiter.bytes > total) break
      share.waiting.delete(waiter)
      add(owner, waiter.bytes)
      Deferred.doneUnsafe(waiter.granted, Effect.void)
    }
    granting = false
  }

  const enqueue = (owner: string, bytes: number) => {
    const { waiting } = shareOf(owner)
    const waiter: Waiter = { place: arrived++, bytes: Math.min(bytes, total), granted: Deferred.makeUnsafe() }
    let taken = waiter.bytes
    waiting.add(waiter)
    grant()
    const resize = (to: number) => {
      add(owner, to - taken)
      taken = to
      grant()
    }
    /** Leaves the queue, or returns what was taken. */
    const end = Effect.sync(() => {
      if (waiting.delete(waiter)) taken = 0
      resize(0)
    })
    return { granted: Deferred.await(waiter.granted), end, lease: { resize } satisfies Lease }
  }

  /** Takes so many bytes until the scope closes; waits for them. */
  const take = (owner: string, bytes: number): Effect.Effect<Lease, Unavailable, Scope.Scope> =>
    Effect.suspend(() => {
      if ((shares.get(owner)?.waiting.size ?? 0) >= maxWaiting) return refused
      return Effect.acquireRelease(
        Effect.sync(() => enqueue(owner, bytes)),
        ({ end }) => end,
      ).pipe(
        Effect.flatMap(({ granted, end, lease }) =>
          Effect.timeoutOrElse(granted, { duration: deadline, orElse: () => Effect.andThen(end, refused) }).pipe(
            Effect.as(lease),
          ),
        ),
      )
    })

  return { take, grant, used: () => used }
}
