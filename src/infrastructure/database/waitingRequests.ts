/** The requests that wait for the database: of all, and of each org that has one. */
export interface Waiting {
  count: number
  readonly byOrg: Map<string, number>
}

/**
 * Counts a request, unless there is no room for it: the last third of the room is for orgs that have less than a third
 * themselves, so that no org takes all of it.
 */
export const enter = (waiting: Waiting, orgId: string, room: number): boolean => {
  const own = waiting.byOrg.get(orgId) ?? 0
  const third = Math.floor(room / 3)
  if (waiting.count >= (own < third ? room : room - third)) return false
  waiting.count++
  waiting.byOrg.set(orgId, own + 1)
  return true
}

/** Ends what `enter` began. */
export const leave = (waiting: Waiting, orgId: string) => {
  waiting.count--
  const own = waiting.byOrg.get(orgId)! - 1
  if (own === 0) waiting.byOrg.delete(orgId)
  else waiting.byOrg.set(orgId, own)
}
