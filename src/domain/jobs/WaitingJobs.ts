import type { Scope } from "effect"
import { Deferred, Effect, Exit, FiberSet, Latch } from "effect"
import type { Unavailable } from "../Errors.ts"
import type { ClaimedJob } from "./Job.ts"

type Claimed = ReadonlyArray<ClaimedJob>

/** What claims have in common that one poll answers. */
export interface PollKey {
  readonly orgId: string
  readonly workflow: string | undefined
  readonly leaseSeconds: number
}

interface Waiter {
  /** How many jobs it takes at most. */
  readonly limit: number
  readonly answer: Deferred.Deferred<Claimed, Unavailable>
  /** Whether the statement in flight claims for it, which is not interrupted: so its time is not over yet. */
  asked: boolean
  late: boolean
  jobs: Claimed
}

interface Poll {
  readonly key: PollKey
  /** In the order in which they came. */
  readonly waiters: Set<Waiter>
  /** Open when the poll is to look before its interval is over. */
  readonly wake: Latch.Latch
}

/** How many jobs one statement claims at most. */
const maxClaim = 100
/** After what time a poll looks for jobs that another replica queued. */
const pollInterval = "1 second"

/** The waiters that a statement claims for, first come first served, and how many jobs that are. */
export const nextToServe = <W extends { readonly limit: number }>(waiters: Iterable<W>, max = maxClaim) => {
  const served: Array<W> = []
  let limit = 0
  for (const waiter of waiters) {
    if (limit >= max) break
    served.push(waiter)
    limit += waiter.limit
  }
  return { served, limit: Math.min(limit, max) }
}

/** Shares jobs among waiters, first come first served, up to the limit of each; `left` is what nobody takes. */
export const handOut = <W extends { readonly limit: number }, J>(waiters: Iterable<W>, jobs: ReadonlyArray<J>) => {
  const given: Array<readonly [W, ReadonlyArray<J>]> = []
  let at = 0
  for (const waiter of waiters) {
    if (at >= jobs.length) break
    given.push([waiter, jobs.slice(at, at + waiter.limit)])
    at += waiter.limit
  }
  return { given, left: jobs.slice(at) }
}

/**
 * Claims that wait for a job. Those of the same key share one poll, which claims for all of them in one statement when a
 * waiter comes, when the org has a new job, and every second; so a job wakes one waiter. Jobs whose waiter has gone go to
 * the next one, or back into the queue.
 *
 * @param claim claims up to so many jobs
 * @param release puts claimed jobs back into the queue
 */
export const make: (
  claim: (key: PollKey, limit: number) => Effect.Effect<Claimed, Unavailable>,
  release: (orgId: string, jobs: Claimed) => Effect.Effect<void, Unavailable>,
) => Effect.Effect<
  {
    /** Waits for jobs, up to `limit` of them, for so many seconds; then there are none. */
    readonly wait: (key: PollKey, limit: number, seconds: number) => Effect.Effect<Claimed, Unavailable>
    /** Says that the org may have queued jobs. */
    readonly wake: (orgId: string) => void
  },
  never,
  Scope.Scope
> = Effect.fnUntraced(function* (claim, release) {
  // Not in the fibers of requests: a poll outlives the waiter that began it.
  const run = yield* FiberSet.makeRuntime()
  // By org, and then by the rest of the key. Bounded by the claims that wait.
  const orgs = new Map<string, Map<string, Poll>>()
  const nameOf = ({ workflow, leaseSeconds }: PollKey) => JSON.stringify([leaseSeconds, workflow])

  const wake = (orgId: string) => orgs.get(orgId)?.forEach((poll) => poll.wake.openUnsafe())

  const answer = (poll: Poll, waiter: Waiter, exit: Exit.Exit<Claimed, Unavailable>) => {
    poll.waiters.delete(waiter)
    if (Exit.isSuccess(exit)) waiter.jobs = exit.value
    Deferred.doneUnsafe(waiter.answer, exit)
  }

  const share = (key: PollKey, jobs: Claimed): Effect.Effect<void> =>
    Effect.suspend(() => {
      const poll = orgs.get(key.orgId)?.get(nameOf(key))
      const { given, left } = handOut(poll?.waiters ?? [], jobs)
      for (const [waiter, own] of given) answer(poll!, waiter, Exit.succeed(own))
      if (left.length === 0) return Effect.void
      return release(key.orgId, left).pipe(
        Effect.andThen(Effect.sync(() => wake(key.orgId))),
        Effect.catchCause((cause) =>
          Effect.logWarning("Jobs of a claim that nobody waits for wait for the end of their lease", cause),
        ),
      )
    })

  /** Claims for those who wait; returns whether there may be more jobs for others. */
  const look = Effect.fnUntraced(function* (poll: Poll) {
    const { served, limit } = nextToServe(poll.waiters)
    for (const waiter of served) waiter.asked = true
    const exit = yield* Effect.exit(claim(poll.key, limit))
    for (const waiter of served) waiter.asked = false
    if (Exit.isFailure(exit)) {
      for (const waiter of [...poll.waiters]) answer(poll, waiter, exit)
      return false
    }
    yield* share(poll.key, exit.value)
    for (const waiter of served) if (waiter.late && poll.waiters.has(waiter)) answer(poll, waiter, Exit.succeed([]))
    return exit.value.length === limit
  }, Effect.uninterruptible)

  const loop = Effect.fnUntraced(function* (poll: Poll, polls: Map<string, Poll>) {
    while (poll.waiters.size > 0) {
      poll.wake.closeUnsafe()
      const hasMore = yield* look(poll)
      if (!hasMore && poll.waiters.size > 0) yield* Effect.raceFirst(poll.wake.await, Effect.sleep(pollInterval))
    }
    polls.delete(nameOf(poll.key))
    if (polls.size === 0) orgs.delete(poll.key.orgId)
  })

  const join = (key: PollKey, waiter: Waiter) => {
    const polls = orgs.get(key.orgId) ?? new Map<string, Poll>()
    orgs.set(key.orgId, polls)
    const poll = polls.get(nameOf(key)) ?? { key, waiters: new Set(), wake: Latch.makeUnsafe(false) }
    poll.waiters.add(waiter)
    poll.wake.openUnsafe()
    if (polls.has(nameOf(key))) return poll
    polls.set(nameOf(key), poll)
    run(loop(poll, polls))
    return poll
  }

  const remove = (poll: Poll, waiter: Waiter) => {
    poll.waiters.delete(waiter)
    if (poll.waiters.size === 0) poll.wake.openUnsafe()
  }

  const wait = (key: PollKey, limit: number, seconds: number) =>
    Effect.uninterruptibleMask((restore) => {
      const waiter: Waiter = { limit, answer: Deferred.makeUnsafe(), asked: false, late: false, jobs: [] }
      const poll = join(key, waiter)
      const end = Effect.suspend(() => {
        waiter.late = true
        if (waiter.asked || !poll.waiters.has(waiter)) return Deferred.await(waiter.answer)
        remove(poll, waiter)
        return Effect.succeed<Claimed>([])
      })
      const answered = Deferred.await(waiter.answer)
      return restore(Effect.raceFirst(answered, Effect.andThen(Effect.sleep(`${seconds} seconds`), end))).pipe(
        Effect.onInterrupt(() =>
          Effect.sync(() => {
            remove(poll, waiter)
            if (waiter.jobs.length > 0) run(share(key, waiter.jobs))
          }),
        ),
      )
    })

  return { wait, wake }
})
