import type { ComponentChildren } from "preact"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath } from "../../navigation/router.tsx"

/** Leads to what the audit log says of a resource; undefined for readers who may not see it. */
export const useChanges = (id: string): ComponentChildren => {
  const orgId = useOrg()
  const may = useMay()
  return may("audit.list") ? <Link to={orgPath(orgId, `/audit?text=${id}`)}>who changed it</Link> : undefined
}
