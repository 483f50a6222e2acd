import { Effect } from "effect"
import { Conflict } from "../Errors.ts"

/** How many tests of one org's endpoints run in a process at one time. */
const maxPerOrg = 4

const sameEndpoint = () => new Conflict({ error: "A test of this endpoint is in flight; wait for its answer." })
const sameOrg = () =>
  new Conflict({ error: `${maxPerOrg} tests of your endpoints are in flight; wait for one of their answers.` })

/** Bounds the tests of endpoints in flight in this process: one of each endpoint, and `maxPerOrg` of each org. */
export const make = () => {
  // The ids of endpoints by org. An org without a test in flight has no entry.
  const inFlight = new Map<string, Set<string>>()

  const end = (orgId: string, endpointId: string) => {
    const ids = inFlight.get(orgId)!
    ids.delete(endpointId)
    if (ids.size === 0) inFlight.delete(orgId)
  }

  /** Runs the test of an endpoint, or fails at once when too many are in flight. */
  return <A, E, R>(
    orgId: string,
    endpointId: string,
    test: Effect.Effect<A, E, R>,
  ): Effect.Effect<A, E | Conflict, R> =>
    Effect.acquireUseRelease(
      Effect.suspend(() => {
        const ids = inFlight.get(orgId) ?? new Set()
        if (ids.has(endpointId)) return Effect.fail(sameEndpoint())
        if (ids.size >= maxPerOrg) return Effect.fail(sameOrg())
        inFlight.set(orgId, ids.add(endpointId))
        return Effect.void
      }),
      () => test,
      () => Effect.sync(() => end(orgId, endpointId)),
    )
}
