import { useData } from "../../client/queries.ts"
import { Copyable } from "../../components/Copy.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Activity } from "../overview/Activity.tsx"
import { ranges, useRange } from "../overview/range.ts"
import { LimitsUsed } from "./LimitsUsed.tsx"

export default () => {
  const orgId = useOrg()
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
      intro={<Copyable text={orgId} label="Copy the id of the org" />}
      actions={<Segments label="Range" value={every} options={ranges} onChange={setEvery} />}
    >
      <Activity every={every} orgId={orgId} />
      <Card title="Limits">{data === undefined ? <Skeleton lines={4} /> : <LimitsUsed org={data} />}</Card>
    </Page>
  )
}
