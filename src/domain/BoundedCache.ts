import { Deferred, Effect, Exit, Scope } from "effect"

/** A value, and its approximate memory in bytes. */
export interface Sized<A> {
  readonly value: A
  readonly bytes: number
}

/** Values by key, up to `maxBytes` together. Evicts the least recently used values first. */
const makeStore = <A>(maxBytes: number) => {
  const stored = new Map<string, Sized<A> & { readonly owner: string }>()
  const bytesByOwner = new Map<string, number>()
  let bytes = 0

  const add = (owner: string, more: number) => {
    bytes += more
    const own = (bytesByOwner.get(owner) ?? 0) + more
    if (own === 0) bytesByOwner.delete(owner)
    else bytesByOwner.set(owner, own)
  }

  const remove = (key: string) => {
    const found = stored.get(key)
    if (found === undefined) return
    stored.delete(key)
    add(found.owner, -found.bytes)
  }

  /** The next key to evict when an owner stores a value: its own oldest when it has more than half of the bytes. */
  const nextToEvict = (owner: string) => {
    if (bytesByOwner.get(owner)! > maxBytes / 2) for (const [key, one] of stored) if (one.owner === owner) return key
    return stored.keys().next().value!
  }

  const exceedsLimit = () => bytes > maxBytes

  return {
    /** Returns a value, and marks it as used. */
    use: (key: string) => {
      const found = stored.get(key)
      if (found === undefined) return undefined
      stored.delete(key)
      stored.set(key, found)
      return found
    },
    /** Stores a value. Does not store one that is larger than `maxBytes`. */
    put: (owner: string, key: string, sized: Sized<A>) => {
      remove(key)
      if (sized.bytes > maxBytes) return
      stored.set(key, { ...sized, owner })
      add(owner, sized.bytes)
      while (exceedsLimit()) remove(nextToEvict(owner))
    },
    bytes: () => bytes,
  }
}

/**
 * A cache of up to `maxBytes` that evicts the least recently used values first. An owner with more than half of the
 * bytes evicts its own values. A value that is larger than the cache is returned and not stored.
 *
 * Requests of a key at the same time share one `refresh`. It runs in the scope of the cache, and continues when one of
 * the requests is interrupted.
 */
export const make = Effect.fnUntraced(function* <A, E>(maxBytes: number) {
  const scope = yield* Scope.Scope
  const store = makeStore<A>(maxBytes)
  const inFlight = new Map<string, Deferred.Deferred<A, E>>()

  /** Returns the stored value of a key while it is fresh. Else makes it with `refresh`, from the previous value. */
  const get = (
    owner: string,
    key: string,
    isFresh: (value: A) => boolean,
    refresh: (previous: A | undefined) => Effect.Effect<Sized<A>, E>,
  ): Effect.Effect<A, E> =>
    Effect.uninterruptibleMask((restore) =>
      Effect.suspend(() => {
        const stored = store.use(key)
        if (stored !== undefined && isFresh(stored.value)) return Effect.succeed(stored.value)
        const joined = inFlight.get(key)
        if (joined !== undefined) return restore(Deferred.await(joined))
        const result = Deferred.makeUnsafe<A, E>()
        inFlight.set(key, result)
        return refresh(stored?.value).pipe(
          Effect.onExit((exit) =>
            Effect.sync(() => {
              inFlight.delete(key)
              if (Exit.isSuccess(exit)) store.put(owner, key, exit.value)
              Deferred.doneUnsafe(
                result,
                Exit.map(exit, ({ value }) => value),
              )
            }),
          ),
          Effect.interruptible,
          Effect.forkIn(scope),
          Effect.andThen(restore(Deferred.await(result))),
        )
      }),
    )

  return { get, bytes: store.bytes }
})
