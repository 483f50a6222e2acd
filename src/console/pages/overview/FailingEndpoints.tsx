import type { Answer } from "../../client/Operations.ts"
import { useData, usePages } from "../../client/queries.ts"
import { Badge } from "../../components/Badge.tsx"
import { numberText } from "../../components/numbers.ts"
import { Card, Empty } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { Link, orgPath } from "../../navigation/router.tsx"
import { outcomeText } from "../deliveries/delivery.ts"

type Endpoint = Answer<"activity.failing">["endpoints"][number]

const reasons: Readonly<Record<string, string>> = {
  gone: "The receiver said that it is gone (410)",
  failing: "It failed for too long",
  by_request: "Somebody turned it off",
}

const EndpointState = ({ active, deactivatedAt, deactivatedReason, failingSince }: Endpoint) => {
  if (!active) {
    return (
      <span title={reasons[deactivatedReason ?? ""]}>
        <Badge tone="bad">Deactivated</Badge> <Time at={deactivatedAt} isRelative />
      </span>
    )
  }
  if (failingSince === null) return <Badge tone="good">Works again</Badge>
  return (
    <span>
      <Badge tone="warn">Failing</Badge> since <Time at={failingSince} isRelative />
    </span>
  )
}

const OrgName = ({ orgId }: { readonly orgId: string }) => {
  const { data } = useData("orgs.get", { orgId }, { isLive: false })
  const name = data?.name ?? orgId
  return (
    <Link class="clip" title={name} to={orgPath(orgId)}>
      {name}
    </Link>
  )
}

/** Which endpoints fail most, and whose they are. */
export const FailingEndpoints = ({ since }: { readonly since: string | undefined }) => {
  const pages = usePages(
    "activity.failing",
    { limit: 10, ...(since === undefined ? {} : { since }) },
    ({ endpoints }) => endpoints,
    // Failed attempts are counted some seconds after the live event that announces them.
    { refetchMillis: 10_000, keepsPrevious: true },
  )
  return (
    <Card title="Endpoints that fail most" isPadded={false}>
      <Table
        caption="Endpoints that fail most"
        {...pages}
        rowKey={({ endpointId }) => endpointId}
        empty={
          <Empty icon="check" title="No attempt has failed">
            <p>Endpoints whose attempts fail are listed here, with their orgs, the most failures first.</p>
          </Empty>
        }
        columns={[
          {
            title: "Endpoint",
            cell: ({ endpointId, host, orgId }) => (
              <Link class="main clip wide" title={host} to={orgPath(orgId, `/endpoints/${endpointId}`)}>
                {host}
              </Link>
            ),
          },
          { title: "Org", align: "words", cell: ({ orgId }) => <OrgName orgId={orgId} /> },
          { title: "State", align: "words", cell: (endpoint) => <EndpointState {...endpoint} /> },
          {
            title: "Last failure",
            align: "words",
            cell: (endpoint) => (
              <span>
                {outcomeText({ failure: endpoint.lastFailure, status: endpoint.lastStatus })},{" "}
                <Time at={endpoint.lastFailureAt} isRelative />
              </span>
            ),
          },
          { title: "Failed attempts", align: "end", cell: ({ failedAttempts }) => numberText(failedAttempts) },
        ]}
      />
    </Card>
  )
}
