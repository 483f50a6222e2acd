import { type Duration, Effect, FiberSet, Queue } from "effect"

/** How much of each owner is in work. */
export type InWork = ReadonlyMap<string, number>

/**
 * Takes what is due and works at it: takes again whenever some of it ends, and after the interval, so that nothing
 * waits for what is slow. Ends when nothing is in work and nothing is due, or after a failure of `take` when nothing is
 * in work. Returns how much it took.
 *
 * @param max how much is in work at once
 * @param take returns at most so much of what is due, given how much of each owner is in work
 */
export const workThrough = Effect.fnUntraced(function* <A, E, R, R2>(options: {
  readonly max: number
  readonly interval: Duration.Input
  readonly ownerOf: (item: A) => string
  readonly take: (atMost: number, inWork: InWork) => Effect.Effect<ReadonlyArray<A>, E, R>
  readonly work: (item: A) => Effect.Effect<unknown, never, R2>
}) {
  const { interval, max, ownerOf, take, work } = options
  const fibers = yield* FiberSet.make()
  const ended = yield* Queue.sliding<void>(1)
  const inWork = new Map<string, number>()
  const count = (item: A, by: 1 | -1) => {
    const owner = ownerOf(item)
    const now = (inWork.get(owner) ?? 0) + by
    if (now === 0) inWork.delete(owner)
    else inWork.set(owner, now)
  }
  const begin = (item: A) => {
    count(item, 1)
    const end = Effect.andThen(
      Effect.sync(() => count(item, -1)),
      Queue.offer(ended, undefined),
    )
    return FiberSet.run(fibers, Effect.ensuring(work(item), end))
  }
  let total = 0
  while (true) {
    const free = max - [...inWork.values()].reduce((sum, n) => sum + n, 0)
    const taken = free === 0 ? [] : yield* take(free, inWork).pipe(Effect.tapError(() => FiberSet.awaitEmpty(fibers)))
    yield* Effect.forEach(taken, begin, { discard: true })
    total += taken.length
    if (taken.length > 0) continue
    if (inWork.size === 0) return total
    yield* Effect.race(Queue.take(ended), Effect.sleep(interval))
  }
}, Effect.scoped)
