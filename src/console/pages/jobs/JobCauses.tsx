import { useData } from "../../client/queries.ts"
import { CausesCard } from "../../components/InBulk.tsx"
import { Time } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { orgPath } from "../../navigation/router.tsx"

interface JobCausesProps {
  readonly workflow?: string
  readonly since?: string
  readonly until?: string
}

/** The failed jobs of an org, grouped by their workflow and message. */
export const JobCauses = (filter: JobCausesProps) => {
  const orgId = useOrg()
  const { data } = useData("jobs.causes", filter, { isLive: false, refetchMillis: 15_000, keepsPrevious: true })
  const causes = (data?.causes ?? []).map(({ error, jobs, latest, workflow }) => ({
    label: error.trim() || "No message",
    to: orgPath(
      orgId,
      `/jobs?${new URLSearchParams({ ...filter, status: "failed", workflow, ...(error && { error }) })}`,
    ),
    count: jobs,
    note: workflow,
    newest: (
      <>
        Newest <Time at={latest.at} isRelative />
      </>
    ),
    newestTo: orgPath(orgId, `/jobs/${latest.job_id}`),
  }))
  return <CausesCard title="Which jobs fail, and why" causes={causes} />
}
