import { Context } from "effect"

/**
 * Counts the requests that wait for the database just now, so that a port can refuse what is too many. `undefined` for
 * background work, which bounds itself.
 */
export const WaitingRequests = Context.Reference<{ count: number } | undefined>("gatehouse/domain/WaitingRequests", {
  defaultValue: () => undefined,
})
