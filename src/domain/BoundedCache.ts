import { Deferred, Effect, Exit, Scope } from "effect"

/** What is kept, and about how many bytes of memory it takes. */
export interface Sized<A> {
  readonly value: A
  readonly bytes: number
}

/**
 * Keeps values by key, up to so many bytes together: those that were not used for the longest time go first, of an
 * owner who has more than half before all else, and one that is larger than all of the room is given and not kept. A value is made once for all who want it at the same time;
 * it is made in the scope given here, and goes on when one of them leaves.
 */
export const make = Effect.fnUntraced(function* <A, E>(maxBytes: number) {
  const scope = yield* Scope.Scope
  const kept = new Map<string, Sized<A> & { readonly owner: string }>()
  const byOwner = new Map<string, number>()
  const underWay = new Map<string, Deferred.Deferred<A, E>>()
  let bytes = 0

  const add = (owner: string, more: number) => {
    bytes += more
    const own = (byOwner.get(owner) ?? 0) + more
    if (own === 0) byOwner.delete(owner)
    else byOwner.set(owner, own)
  }
  const forget = (key: string) => {
    const there = kept.get(key)
    if (there === undefined) return
    kept.delete(key)
    add(there.owner, -there.bytes)
  }
  /** What goes first when an owner keeps more. */
  const oldest = (owner: string) => {
    if (byOwner.get(owner)! > maxBytes / 2) for (const [key, there] of kept) if (there.owner === owner) return key
    return kept.keys().next().value!
  }
  const exceeds = () => bytes > maxBytes
  const keep = (owner: string, key: string, sized: Sized<A>) => {
    forget(key)
    if (sized.bytes > maxBytes) return
    kept.set(key, { ...sized, owner })
    add(owner, sized.bytes)
    while (exceeds()) forget(oldest(owner))
  }

  /** The value of a key. One that is kept and fresh is given as it is; else `refresh` makes it, or makes it anew. */
  const get = (
    owner: string,
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
              if (Exit.isSuccess(exit)) keep(owner, key, exit.value)
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
