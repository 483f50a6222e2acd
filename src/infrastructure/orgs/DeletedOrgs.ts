import { Context } from "effect"
import { LRUCache } from "lru-cache"

/** Orgs that a replica remembers as deleted. What is claimed of them in memory ends long before so many are deleted. */
const maxDeletedOrgs = 10_000

/** Remembers no org yet. */
export const makeDeletedOrgs = () => {
  const ids = new LRUCache<string, true>({ max: maxDeletedOrgs })
  return { add: (orgId: string) => void ids.set(orgId, true), has: (orgId: string) => ids.has(orgId) }
}

/**
 * The orgs that this process has heard were deleted, so that it sends nothing that it has claimed before. The database
 * does not need it: no claim after a deletion returns anything of the org. A simulation gives each process its own.
 */
export class DeletedOrgs extends Context.Reference<ReturnType<typeof makeDeletedOrgs>>(
  "gatehouse/infrastructure/orgs/DeletedOrgs",
  { defaultValue: makeDeletedOrgs },
) {}
