import { Deferred, type Duration, Effect, type Scope } from "effect"
import { Unavailable } from "./Errors.ts"

/** Bytes of a budget that are in use until the scope closes. */
export interface Reservation {
  /** Changes the number of bytes. Does not wait, so the budget can be exceeded. */
  readonly resize: (bytes: number) => void
}

interface Waiter {
  /** The order of arrival. */
  readonly order: number
  readonly bytes: number
  readonly isSmall: boolean
  readonly granted: Deferred.Deferred<void>
}

/** The bytes in use of one owner, and its waiting requests. */
interface Share {
  used: number
  readonly waiting: Set<Waiter>
}

export interface ByteBudgetOptions {
  /** The bytes that may be in use at the same time. */
  readonly bytes: number
  /** The bytes of one owner. A single request may use more. Default: no limit. */
  readonly perOwner?: number
  /** Bytes that only small requests use, so that they need not wait for large ones. Default: none. */
  readonly reserved?: { readonly bytes: number; readonly maxSmall: number }
  /** How long a request waits for its bytes before it fails with a 503. */
  readonly deadline: Duration.Input
  /** The waiting requests of one owner. Further ones fail with a 503 at once. */
  readonly maxWaiting: number
  /** The error of the 503. */
  readonly error: string
  /** Frees some unused bytes. Returns `false` when there are none. */
  readonly reclaim?: () => boolean
}

/**
 * A limit of the bytes that requests use at the same time. Owners share it: a request waits until enough bytes are
 * free, and the owner with the fewest bytes in use is next. A request that is larger than the budget waits for the
 * whole budget.
 */
export const make = (options: ByteBudgetOptions) => {
  const { bytes: total, perOwner = Infinity, deadline, maxWaiting, error, reclaim = () => false } = options
  const { bytes: reserved, maxSmall } = options.reserved ?? { bytes: 0, maxSmall: 0 }
  // Bounded by the requests that use bytes or wait.
  const shares = new Map<string, Share>()
  const refused = Effect.fail(new Unavailable({ error }))
  let used = 0
  /** The bytes that small requests use. */
  let smallUsed = 0
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

  /**
   * The first waiter of the owner with the fewest bytes in use. Skips owners that would exceed `perOwner`. Between
   * equal owners, the earlier waiter is next.
   *
   * @param onlySmall whether a large request waits for memory already
   */
  const next = (onlySmall: boolean) => {
    let least: { readonly owner: string; readonly share: Share; readonly waiter: Waiter } | undefined
    for (const [owner, share] of shares) {
      const [waiter] = share.waiting
      if (waiter === undefined || (share.used > 0 && share.used + waiter.bytes > perOwner)) continue
      if (onlySmall && !(waiter.isSmall && smallUsed + waiter.bytes <= reserved)) continue
      const difference = least === undefined ? -1 : share.used - least.share.used || waiter.order - least.waiter.order
      if (difference < 0) least = { owner, share, waiter }
    }
    return least
  }
  const grant = () => {
    // `reclaim` returns bytes to the budget, which calls `grant` again.
    if (granting) return
    granting = true
    let isLargeWaiting = false
    for (let chosen = next(false); chosen !== undefined; chosen = next(isLargeWaiting)) {
      const { owner, share, waiter } = chosen
      const limit = waiter.isSmall ? total : total - reserved
      while (used + waiter.bytes > limit && reclaim());
      if (used + waiter.bytes > limit) {
        if (isLargeWaiting || waiter.isSmall || reserved === 0) break
        isLargeWaiting = true
        continue
      }
      share.waiting.delete(waiter)
      add(owner, waiter.bytes)
      if (waiter.isSmall) smallUsed += waiter.bytes
      Deferred.doneUnsafe(waiter.granted, Effect.void)
    }
    granting = false
  }

  const enqueue = (owner: string, bytes: number) => {
    const { waiting } = shareOf(owner)
    const isSmall = bytes <= maxSmall
    const most = isSmall ? total : total - reserved
    const waiter: Waiter = { order: arrived++, bytes: Math.min(bytes, most), isSmall, granted: Deferred.makeUnsafe() }
    let taken = waiter.bytes
    waiting.add(waiter)
    grant()
    const resize = (to: number) => {
      add(owner, to - taken)
      if (isSmall) smallUsed += to - taken
      taken = to
      grant()
    }
    /** Stops waiting, or returns the bytes. */
    const end = Effect.sync(() => {
      if (waiting.delete(waiter)) taken = 0
      resize(0)
    })
    return { granted: Deferred.await(waiter.granted), end, lease: { resize } satisfies Reservation }
  }

  /** Waits for bytes, and uses them until the scope closes. */
  const take = (owner: string, bytes: number): Effect.Effect<Reservation, Unavailable, Scope.Scope> =>
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
