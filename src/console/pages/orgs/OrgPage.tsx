import { useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Badge } from "../../components/Badge.tsx"
import { Copyable } from "../../components/Copy.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { counted } from "../../components/numbers.ts"
import { Card, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath } from "../../navigation/router.tsx"
import { Activity } from "../overview/Activity.tsx"
import { ranges, useRange } from "../overview/range.ts"
import { useEndpoints } from "../webhooks/endpoints.ts"
import { LimitsUsed } from "./LimitsUsed.tsx"

/** Leads to the endpoints that receive nothing. Beside the title, so that no chart moves when they are read. */
const Deactivated = ({ orgId }: { readonly orgId: string }) => {
  const { endpoints = [] } = useEndpoints()
  const count = endpoints.filter(({ active }) => !active).length
  if (count === 0) return null
  return (
    <Link to={orgPath(orgId, "/endpoints?state=deactivated")}>
      <Badge tone="bad">
        {counted(count, "endpoint")} {count === 1 ? "is" : "are"} deactivated
      </Badge>
    </Link>
  )
}

export default () => {
  const orgId = useOrg()
  const may = useMay()
  const [every, setEvery] = useRange("hour")
  const { data, error, refetch } = useData("orgs.get", { orgId })
  if (data === undefined && error !== null) {
    return (
      <Page title="Org">
        <ErrorBox error={error} onRetry={refetch} />
      </Page>
    )
  }
  return (
    <Page
      title={data?.name ?? "Org"}
      state={may("webhooks.list") && <Deactivated orgId={orgId} />}
      intro={<Copyable text={orgId} label="Copy the id of the org" />}
      actions={<Segments label="Range" value={every} options={ranges} onChange={setEvery} />}
    >
      <Activity every={every} orgId={orgId} />
      <Card title="Limits">{data === undefined ? <Skeleton lines={4} /> : <LimitsUsed org={data} />}</Card>
    </Page>
  )
}
