import { DateTime, Deferred, Effect, Exit, FiberSet, Latch } from "effect"
import { InvalidRequest, type LimitReached, Unauthorized, Unavailable } from "../Errors.ts"
import { CurrentPrincipal, currentTenant, RequestOrg } from "../Principal.ts"
import { Wakeups } from "../Wakeups.ts"
import { DefaultLimits, limitReached } from "../orgs/OrgLimits.ts"
import { type ClaimedJob, type ClaimJobs, defaultClaimLimit, defaultLeaseSeconds, defaultWaitSeconds } from "./Job.ts"
import { JobRepository } from "./JobRepository.ts"
import { makeTell } from "./tellJobs.ts"

/** The workflows of a claim; `undefined` for any. Fails when the request has both fields. */
const claimedWorkflows = ({ workflow, workflows }: typeof ClaimJobs.Type) => {
  if (workflow !== undefined && workflows !== undefined) {
    return Effect.fail(
      new InvalidRequest({ error: "workflow and workflows must not be sent together: send one of them." }),
    )
  }
  return Effect.succeed(workflow === undefined ? workflows && [...new Set(workflows)].toSorted() : [workflow])
}

const credentialEnded = new Unauthorized({ error: "The credential ended while the claim waited. Send another one." })

/** Fails when the credential of a claim has ended since it began to wait. */
const stillAdmitted = CurrentPrincipal.use(({ recheck = Effect.void }) =>
  Effect.mapError(recheck, (error) => (error instanceof Unavailable ? error : credentialEnded)),
)

/** Makes the claim of jobs: at once, or after a wait for the first one. */
export const makeClaim = Effect.gen(function* () {
  const repository = yield* JobRepository
  const wakeups = yield* Wakeups
  const tell = yield* makeTell
  const limited = limitWaitingClaims((yield* DefaultLimits).waitingClaims)

  const claimNow = Effect.fnUntraced(function* (key: PollKey, limit: number) {
    const now = yield* DateTime.now
    const leaseUntil = DateTime.add(now, { seconds: key.leaseSeconds })
    const claimed = yield* repository.claim(key.orgId, { workflows: key.workflows, limit, now, leaseUntil })
    tell(key.orgId, idsOf(claimed), "running")
    return claimed
  })
  const waiting = yield* makeJobPolls(
    (key, limit) => Effect.provideService(claimNow(key, limit), RequestOrg, key.orgId),
    Effect.fnUntraced(function* (orgId, jobs) {
      yield* repository.release(orgId, jobs, yield* DateTime.now)
      tell(orgId, idsOf(jobs), "queued")
    }),
  )
  yield* wakeups.onJobs(waiting.wake)

  return Effect.fn("Jobs.claim")(function* (input: typeof ClaimJobs.Type) {
    const orgId = yield* currentTenant
    const {
      limit = defaultClaimLimit,
      lease_seconds: leaseSeconds = defaultLeaseSeconds,
      wait_seconds: wait = defaultWaitSeconds,
    } = input
    const key = { orgId, workflows: yield* claimedWorkflows(input), leaseSeconds }
    if (wait === 0) return yield* claimNow(key, limit)
    return yield* limited(orgId, waiting.wait(key, limit, wait, stillAdmitted))
  })
})

type Claimed = ReadonlyArray<ClaimedJob>
const idsOf = (jobs: Claimed) => jobs.map(({ job_id }) => job_id)

/** Claims with the same key share one poll. */
interface PollKey {
  readonly orgId: string
  /** Sorted, without duplicates; `undefined` for any workflow. */
  readonly workflows: ReadonlyArray<string> | undefined
  readonly leaseSeconds: number
}

/** A claim that waits for jobs. */
interface Waiter {
  /** The maximum of jobs. */
  readonly limit: number
  readonly answer: Deferred.Deferred<Claimed, Unavailable>
  /**
   * Whether the statement in flight claims for it. That statement is not interrupted, so the waiter waits for its
   * result.
   */
  isServed: boolean
  /** Whether its time to wait is over. */
  isOver: boolean
  jobs: Claimed
}

/** The claims of one key that wait, and what wakes their loop. */
interface Poll {
  readonly key: PollKey
  /** In the order of their arrival. */
  readonly waiters: Set<Waiter>
  /** Ends the sleep between two claims when it opens. */
  readonly wake: Latch.Latch
}

/** Jobs that one statement claims at most. */
const maxClaimedJobs = 100
/** How often a poll claims when nothing wakes it. It finds the jobs that other replicas queue. */
const pollInterval = "1 second"

/** The next waiters to claim for, first come first served, and the sum of their limits, up to `max`. */
export const nextToServe = <W extends { readonly limit: number }>(waiters: Iterable<W>, max = maxClaimedJobs) => {
  const served: Array<W> = []
  let limit = 0
  for (const waiter of waiters) {
    if (limit >= max) break
    served.push(waiter)
    limit += waiter.limit
  }
  return { served, limit: Math.min(limit, max) }
}

/**
 * Distributes jobs to waiters, first come first served, up to the limit of each. `left` are the jobs without a waiter.
 */
export const distribute = <W extends { readonly limit: number }, J>(waiters: Iterable<W>, jobs: ReadonlyArray<J>) => {
  const shares: Array<readonly [W, ReadonlyArray<J>]> = []
  let at = 0
  for (const waiter of waiters) {
    if (at >= jobs.length) break
    shares.push([waiter, jobs.slice(at, at + waiter.limit)])
    at += waiter.limit
  }
  return { shares, left: jobs.slice(at) }
}

/** The polls of this replica, by org and key. Bounded by the claims that wait. */
const makePolls = () => {
  const orgs = new Map<string, Map<string, Poll>>()
  const nameOf = ({ workflows, leaseSeconds }: PollKey) => JSON.stringify([leaseSeconds, workflows])

  return {
    find: (key: PollKey) => orgs.get(key.orgId)?.get(nameOf(key)),
    add: (key: PollKey): Poll => {
      const poll = { key, waiters: new Set<Waiter>(), wake: Latch.makeUnsafe(false) }
      const polls = orgs.get(key.orgId) ?? new Map<string, Poll>()
      orgs.set(key.orgId, polls.set(nameOf(key), poll))
      return poll
    },
    remove: ({ key }: Poll) => {
      const polls = orgs.get(key.orgId)!
      polls.delete(nameOf(key))
      if (polls.size === 0) orgs.delete(key.orgId)
    },
    /** Wakes the polls of an org. */
    wake: (orgId: string) => orgs.get(orgId)?.forEach((poll) => poll.wake.openUnsafe()),
  }
}

const answer = (poll: Poll, waiter: Waiter, exit: Exit.Exit<Claimed, Unavailable>) => {
  poll.waiters.delete(waiter)
  if (Exit.isSuccess(exit)) waiter.jobs = exit.value
  Deferred.doneUnsafe(waiter.answer, exit)
}

/** Removes a waiter without an answer. The loop of a poll without waiters ends. */
const leave = (poll: Poll, waiter: Waiter) => {
  poll.waiters.delete(waiter)
  if (poll.waiters.size === 0) poll.wake.openUnsafe()
}

/**
 * Claims that wait for a job. Claims of the same key share one poll, which claims for all of them in one statement:
 * when a waiter arrives, when the org gets a job, and every second. So a job wakes one waiter. Jobs whose waiter has
 * left go to the next waiter, or back to the queue.
 *
 * @param claim claims up to `limit` jobs
 * @param release returns claimed jobs to the queue
 */
const makeJobPolls = Effect.fnUntraced(function* (
  claim: (key: PollKey, limit: number) => Effect.Effect<Claimed, Unavailable>,
  release: (orgId: string, jobs: Claimed) => Effect.Effect<void, Unavailable>,
) {
  // Polls do not run in the fibers of requests, because a poll outlives the waiter that started it.
  const run = yield* FiberSet.makeRuntime()
  const polls = makePolls()

  const share = (key: PollKey, jobs: Claimed): Effect.Effect<void> =>
    Effect.suspend(() => {
      const poll = polls.find(key)
      const { shares, left } = distribute(poll?.waiters ?? [], jobs)
      for (const [waiter, own] of shares) answer(poll!, waiter, Exit.succeed(own))
      if (left.length === 0) return Effect.void
      return release(key.orgId, left).pipe(
        Effect.andThen(Effect.sync(() => polls.wake(key.orgId))),
        Effect.catchCause((cause) =>
          Effect.logWarning(
            "Claimed jobs without a waiter are not released; they are queued when their lease expires",
            cause,
          ),
        ),
      )
    })

  /** Claims for the next waiters. Returns whether there may be more jobs for the others. */
  const serve = Effect.fnUntraced(function* (poll: Poll) {
    const { served, limit } = nextToServe(poll.waiters)
    for (const waiter of served) waiter.isServed = true
    const exit = yield* Effect.exit(claim(poll.key, limit))
    for (const waiter of served) waiter.isServed = false
    if (Exit.isFailure(exit)) {
      for (const waiter of [...poll.waiters]) answer(poll, waiter, exit)
      return false
    }
    yield* share(poll.key, exit.value)
    for (const waiter of served) if (waiter.isOver && poll.waiters.has(waiter)) answer(poll, waiter, Exit.succeed([]))
    return exit.value.length === limit
  }, Effect.uninterruptible)

  const loop = Effect.fnUntraced(function* (poll: Poll) {
    while (poll.waiters.size > 0) {
      poll.wake.closeUnsafe()
      const hasMore = yield* serve(poll)
      if (!hasMore && poll.waiters.size > 0) yield* Effect.raceFirst(poll.wake.await, Effect.sleep(pollInterval))
    }
    polls.remove(poll)
  })

  const join = (key: PollKey, waiter: Waiter) => {
    const joined = polls.find(key)
    const poll = joined ?? polls.add(key)
    poll.waiters.add(waiter)
    poll.wake.openUnsafe()
    if (joined === undefined) run(loop(poll))
    return poll
  }

  /**
   * Waits up to `seconds` for up to `limit` jobs. Returns an empty list if none arrives. When `check` fails after the
   * wait, the jobs go to others.
   */
  const wait = <E, R>(key: PollKey, limit: number, seconds: number, check: Effect.Effect<void, E, R>) =>
    Effect.uninterruptibleMask((restore) => {
      const waiter: Waiter = { limit, answer: Deferred.makeUnsafe(), isServed: false, isOver: false, jobs: [] }
      const poll = join(key, waiter)
      const end = Effect.suspend(() => {
        waiter.isOver = true
        if (waiter.isServed || !poll.waiters.has(waiter)) return Deferred.await(waiter.answer)
        leave(poll, waiter)
        return Effect.succeed<Claimed>([])
      })
      const answered = Deferred.await(waiter.answer)
      const waited = Effect.raceFirst(answered, Effect.andThen(Effect.sleep(`${seconds} seconds`), end))
      return restore(Effect.tap(waited, check)).pipe(
        Effect.onError(() =>
          Effect.sync(() => {
            leave(poll, waiter)
            if (waiter.jobs.length > 0) run(share(key, waiter.jobs))
          }),
        ),
      )
    })

  return { wait, wake: polls.wake }
})

/** Limits the claims of each org that wait in this replica. */
export const limitWaitingClaims = (limit: number) => {
  // Bounded by the waiting claims: an org without one has no entry.
  const waiting = new Map<string, number>()
  const change = (orgId: string, by: 1 | -1) => {
    const count = (waiting.get(orgId) ?? 0) + by
    if (count === 0) waiting.delete(orgId)
    else waiting.set(orgId, count)
  }

  /** Runs a claim that waits. Fails with `LimitReached` at once when its org has reached the limit. */
  return <A, E, R>(orgId: string, claim: Effect.Effect<A, E, R>) =>
    Effect.suspend((): Effect.Effect<A, E | LimitReached, R> => {
      if ((waiting.get(orgId) ?? 0) >= limit) return limitReached("waitingClaims", limit)
      change(orgId, 1)
      return Effect.ensuring(
        claim,
        Effect.sync(() => change(orgId, -1)),
      )
    })
}
