/** The number of requests that wait for the database: of all orgs, and of each org with at least one. */
export interface Waiting {
  count: number
  readonly byOrg: Map<string, number>
}

/**
 * Counts a request. Returns false if it exceeds the limit: `max` for orgs with less than a third of it, two thirds of `max`
 * for the others, so that no org takes all of it.
 */
export const enter = (waiting: Waiting, orgId: string, max: number): boolean => {
  const own = waiting.byOrg.get(orgId) ?? 0
  const third = Math.floor(max / 3)
  if (waiting.count >= (own < third ? max : max - third)) return false
  waiting.count++
  waiting.byOrg.set(orgId, own + 1)
  return true
}

/** Ends the wait of a request that `enter` counted. */
export const leave = (waiting: Waiting, orgId: string) => {
  waiting.count--
  const own = waiting.byOrg.get(orgId)! - 1
  if (own === 0) waiting.byOrg.delete(orgId)
  else waiting.byOrg.set(orgId, own)
}
