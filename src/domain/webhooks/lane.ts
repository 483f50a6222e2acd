import type { ClaimedDelivery } from "./DeliveryQueue.ts"

/*
 * The ids of lanes. The lane of an endpoint is its id; after each deactivation it is the id, a full stop, and a number,
 * and what is pending in an earlier lane is canceled. A lane of callbacks is the org's id, a space, and a number.
 */

/** The length of the id of an endpoint or an org. */
export const laneIdLength = 26
/** What follows the id of an endpoint in a lane after its deactivation. */
export const afterEndpoint = "."
/** What follows the id of an org in the lanes of its callbacks, and the next character: all are between both. */
export const [afterOrg, afterCallbacks] = [" ", "!"]

/** How often the endpoint of a lane had been deactivated. */
export const laneNumber = (lane: string) => Number(lane.split(afterEndpoint)[1] ?? 0)

/** The number of lanes that all callbacks of an org share. Several origins can share a lane. */
const callbackLanesPerOrg = 128

/** The lane of an org's callbacks to an origin. */
export const callbackLane = (orgId: string, url: string) => {
  // FNV-1a, 32 bits: it spreads origins evenly and is the same on every replica.
  let hash = 0x811c9dc5
  for (const char of new URL(url).origin) hash = Math.imul(hash ^ char.codePointAt(0)!, 0x01000193) >>> 0
  return `${orgId}${afterOrg}${hash % callbackLanesPerOrg}`
}

/** What shares a limit of attempts in flight: an endpoint with all its lanes, or the lane of the callback. */
export const laneId = ({ endpointId, lane }: Pick<ClaimedDelivery, "endpointId" | "lane">) => endpointId ?? lane
