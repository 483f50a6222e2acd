import { Context } from "effect"
import { LRUCache } from "lru-cache"

/** Orgs that a replica remembers as deleted. What is claimed of them in memory ends long before so many are deleted. */
const maxDeletedOrgs = 10_000

/**
 * The orgs that this process has heard were deleted, so that it sends nothing that it has claimed before. The database
 * does not need it: no claim after a deletion returns anything of the org.
 */
export class DeletedOrgs extends Context.Reference<{
  readonly add: (orgId: string) => void
  readonly has: (orgId: string) => boolean
}>("gatehouse/infrastructure/orgs/DeletedOrgs", {
  defaultValue: () => {
    const ids = new LRUCache<string, true>({ max: maxDeletedOrgs })
    return { add: (orgId) => void ids.set(orgId, true), has: (orgId) => ids.has(orgId) }
  },
}) {}
