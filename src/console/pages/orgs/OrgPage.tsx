import { Copyable } from "../../components/Copy.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card, Facts, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { Time } from "../../components/Time.tsx"
import { useData } from "../../client/queries.ts"
import { useOrg } from "../../navigation/org.ts"

export default () => {
  const orgId = useOrg()
  const { data, error, refetch } = useData("orgs.get", { orgId })
  if (data === undefined && error !== null) return <ErrorBox error={error} onRetry={refetch} />
  return (
    <Page title={data?.name ?? "Org"}>
      <Card title="About">
        {data === undefined ? (
          <Skeleton lines={3} />
        ) : (
          <Facts
            of={{
              Id: <Copyable text={data.orgId} label="Copy the id" />,
              Created: <Time at={data.createdAt} />,
              "Repository owners": data.owners.length === 0 ? "none" : data.owners.join(", "),
            }}
          />
        )}
      </Card>
    </Page>
  )
}
