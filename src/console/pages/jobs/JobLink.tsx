import { useMay } from "../../client/session.tsx"
import { Copyable } from "../../components/Button.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath } from "../../navigation/router.tsx"

/** A job by its id: its page, for who may see it. */
export const JobLink = ({ id }: { readonly id: string }) => {
  const orgId = useOrg()
  if (!useMay()("jobs.get")) return <Copyable text={id} label="Copy the id of the job" />
  return (
    <Link to={orgPath(orgId, `/jobs/${id}`)}>
      <code>{id}</code>
    </Link>
  )
}
