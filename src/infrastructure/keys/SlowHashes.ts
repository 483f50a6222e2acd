import { Deferred, Effect, type Exit } from "effect"
import type { Unavailable } from "../../domain/Errors.ts"
import { noRoom } from "../../domain/keys/KeyChecks.ts"
import type { SlowHashTask } from "./SlowHashThread.ts"

/** The hashes that may wait: of all, of an org, and of an org from one network. */
const maxWaiting = { all: 512, org: 64, network: 16 }

interface Waiting {
  readonly task: SlowHashTask
  readonly answer: Deferred.Deferred<boolean, Unavailable>
}

/** Takes the next of the first group, which becomes the last one. */
const rotate = <A>(groups: Map<string, A>, isEmpty: (group: A) => boolean, next: (group: A) => Waiting) => {
  const [name, group] = groups.entries().next().value!
  const taken = next(group)
  groups.delete(name)
  if (!isEmpty(group)) groups.set(name, group)
  return taken
}

/**
 * Computes slow hashes one after the other: the orgs take turns, and in each org the networks of the clients. The same
 * key and hash asked twice are computed once. What finds no room fails with `noRoom` at once.
 */
export const make = Effect.fnUntraced(function* (verify: (task: SlowHashTask) => Effect.Effect<boolean, Unavailable>) {
  const scope = yield* Effect.scope
  const orgs = new Map<string, Map<string, Array<Waiting>>>()
  /** By hash and key: what waits, and what is computed. */
  const asked = new Map<string, Waiting>()
  let isRunning = false

  const next = () =>
    rotate(
      orgs,
      ({ size }) => size === 0,
      (networks) =>
        rotate(
          networks,
          ({ length }) => length === 0,
          (own) => own.shift()!,
        ),
    )
  const nameOf = ({ hash, key }: SlowHashTask) => `${hash} ${key}`

  const drain: Effect.Effect<void> = Effect.suspend(() => {
    isRunning = orgs.size > 0
    if (!isRunning) return Effect.void
    const { answer, task } = next()
    const done = (exit: Exit.Exit<boolean, Unavailable>) => {
      asked.delete(nameOf(task))
      Deferred.doneUnsafe(answer, exit)
      return drain
    }
    return Effect.flatMap(Effect.exit(verify(task)), done)
  })

  const mayWait = (networks: Map<string, Array<Waiting>>, own: ReadonlyArray<Waiting>) => {
    const ofOrg = [...networks.values()].reduce((sum, { length }) => sum + length, 0)
    return asked.size < maxWaiting.all && ofOrg < maxWaiting.org && own.length < maxWaiting.network
  }

  return {
    /** Whether a key has a hash, of a key of an org, for a client of a network. */
    ask: Effect.fnUntraced(function* (orgId: string, network: string, task: SlowHashTask) {
      const known = asked.get(nameOf(task))
      if (known !== undefined) return yield* Deferred.await(known.answer)
      const networks = orgs.get(orgId) ?? new Map<string, Array<Waiting>>()
      const own = networks.get(network) ?? []
      if (!mayWait(networks, own)) return yield* noRoom
      const waiting: Waiting = { task, answer: Deferred.makeUnsafe() }
      asked.set(nameOf(task), waiting)
      orgs.set(orgId, networks.set(network, own))
      own.push(waiting)
      if (!isRunning) {
        isRunning = true
        yield* Effect.forkIn(drain, scope)
      }
      return yield* Deferred.await(waiting.answer)
    }),
  }
})
