import type { ClaimedDelivery } from "./DeliveryQueue.ts"

/** The number of lanes that all callbacks of an org share. Several origins can share a lane. */
const callbackLanesPerOrg = 128

/** The lane of an org's callbacks to an origin. It contains a space, so it differs from the lane of every endpoint. */
export const callbackLane = (orgId: string, url: string) => {
  // FNV-1a, 32 bits: it spreads origins evenly and is the same on every replica.
  let hash = 0x811c9dc5
  for (const char of new URL(url).origin) hash = Math.imul(hash ^ char.codePointAt(0)!, 0x01000193) >>> 0
  return `${orgId} ${hash % callbackLanesPerOrg}`
}

/** The id of a delivery's lane: the endpoint's id, or the lane of the callback. */
export const laneId = ({ endpointId, lane }: Pick<ClaimedDelivery, "endpointId" | "lane">) => endpointId ?? lane
