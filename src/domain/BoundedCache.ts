import { Deferred, Effect, Exit, Scope } from "effect"

/** What is kept, and about how many bytes of memory it takes. */
export interface Sized<A> {
  readonly value: A
  readonly bytes: number
}

/**
 * Keeps values by key, up to so many bytes together: those that were not used for the longest time go first, and one
 * that is larger than all of the room is given and not kept. A value is made once for all who want it at the same time;
 * it is made in the scope given here, and goes on when one of them leaves.
 */
export const make = Effect.fnUntraced(function* <A, E>(maxBytes: number) {
  const scope = yield* Scope.Scope
  const kept = new Map<string, Sized<A>>()
  const underWay = new Map<string, Deferred.Deferred<A, E>>()
  let bytes = 0

  const forget = (key: string) => {
    bytes -= kept.get(key)?.bytes ?? 0
    kept.delete(key)
  }
  const keep = (key: string, sized: Sized<A>) => {
    forget(key)
    if (sized.bytes > maxBytes) return
    kept.set(key, sized)
    bytes += sized.bytes
    for (const oldest of kept.keys()) {
      if (bytes <= maxBytes) break
      forget(oldest)
    }
  }

  /** The value of a key. One that is kept and fresh is given as it is; else `refresh` makes it, or makes it anew. */
  const get = (
    key: string,
    isFresh: (value: A) => boolean,
    refresh: (previous: A | undefined) => Effect.Effect<Sized<A>, E>,
  ): Effect.Effect<A, E> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const there = kept.get(key)
        if (there !== undefined) {
          // Used last, so it goes last.
          kept.delete(key)
          kept.set(key, there)
          if (isFresh(there.value)) return Effect.succeed(there.value)
        }
        const joined = underWay.get(key)
        if (joined !== undefined) return restore(Deferred.await(joined))
        const made = Deferred.makeUnsafe<A, E>()
        underWay.set(key, made)
        return refresh(there?.value).pipe(
          Effect.onExit((exit) =>
            Effect.sync(() => {
              underWay.delete(key)
              if (Exit.isSuccess(exit)) keep(key, exit.value)
              Deferred.doneUnsafe(
                made,
                Exit.map(exit, ({ value }) => value),
              )
            }),
          ),
          Effect.interruptible,
          Effect.forkIn(scope),
          Effect.andThen(restore(Deferred.await(made))),
        )
      }),
    )

  return { get, bytes: () => bytes }
})
