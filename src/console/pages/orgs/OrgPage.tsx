import { GatehouseError } from "../../client/call.ts"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Badge, capitalized } from "../../components/Badge.tsx"
import { buttonClass, Copyable, PrintButton } from "../../components/Button.tsx"
import { fieldWords } from "../../components/ErrorBox.tsx"
import { Card, Facts, Page } from "../../components/Page.tsx"
import { Loaded } from "../../components/Table.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { Time } from "../../components/Time.tsx"
import { counted, numberText } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath } from "../../navigation/router.tsx"
import { actorText } from "../audit/AuditPage.tsx"
import { Causes } from "../deliveries/Resends.tsx"
import { JobCauses } from "../jobs/JobCauses.tsx"
import { Activity, ranges, useRange } from "../overview/Activity.tsx"
import { useEndpoints } from "../webhooks/endpoints.ts"
import { limitLabels, limitNames, limitText, limitTone } from "./limits.ts"

/** Leads to the endpoints that receive nothing. Beside the title, so that no chart moves when they are read. */
const Deactivated = ({ orgId }: { readonly orgId: string }) => {
  const { endpoints = [], isAll } = useEndpoints()
  const count = endpoints.filter(({ active }) => !active).length
  if (count === 0) return null
  return (
    <Link to={orgPath(orgId, "/endpoints?state=deactivated")}>
      <Badge tone="bad">
        {!isAll && "At least "}
        {counted(count, "endpoint")} {count === 1 ? "is" : "are"} deactivated
      </Badge>
    </Link>
  )
}

export default () => {
  const orgId = useOrg()
  const may = useMay()
  const [every, setEvery] = useRange("hour")
  const response = useData("orgs.get", { orgId })
  const isGone = response.error instanceof GatehouseError && response.error.status === 404
  if (isGone && may("orgs.erasure")) return <ErasurePage orgId={orgId} />
  return (
    <Page
      title={response.data?.name ?? "Org"}
      state={may("webhooks.list") && <Deactivated orgId={orgId} />}
      intro={<Copyable text={orgId} label="Copy the id of the org" />}
      actions={
        <>
          {may("alerts.list") && (
            <Link class={buttonClass()} to={orgPath(orgId, "/alerts")}>
              Alerts
            </Link>
          )}
          <Segments label="Range" value={every} options={ranges} onChange={setEvery} />
          <PrintButton />
        </>
      }
    >
      {may("deliveries.causes") && <Causes />}
      {may("jobs.causes") && <JobCauses />}
      <Activity every={every} orgId={orgId} />
      <Card title="Limits">
        <Loaded of={response} lines={4}>
          {(org) => <LimitsUsed org={org} />}
        </Loaded>
      </Card>
    </Page>
  )
}

/** A deleted org: how far its erasure is, then the receipt. */
const ErasurePage = ({ orgId }: { readonly orgId: string }) => {
  const response = useData("orgs.erasure", { orgId }, { refetchMillis: 5_000 })
  return (
    <Page
      title="Deleted org"
      intro={<Copyable text={orgId} label="Copy the id of the org" />}
      actions={
        <>
          <Link class={buttonClass()} to={orgPath(orgId, "/audit")}>
            Audit log
          </Link>
          <PrintButton />
        </>
      }
    >
      <Loaded of={response} lines={6}>
        {({ actor, deletedAt, endedAt, erased, person, progress }) => (
          <Card title={endedAt === null ? "Erasure" : "Receipt of the erasure"}>
            {endedAt === null && (
              <>
                <p>
                  {progress < 100
                    ? `${progress} % of the steps are done. It continues when you leave this page.`
                    : "All steps are done. The last check waits until every request from before has ended."}
                </p>
                <progress class="bar" aria-label="Steps of the erasure" value={progress} max={100} />
              </>
            )}
            <Facts
              of={{
                "Deleted by": actorText({ actor, person }, (id) => id),
                Begun: <Time at={deletedAt} />,
                Ended: endedAt === null ? undefined : <Time at={endedAt} />,
                ...Object.fromEntries(
                  Object.entries(erased).flatMap(([kind, rows]) =>
                    rows === 0 ? [] : [[capitalized(fieldWords(kind)), numberText(rows)]],
                  ),
                ),
              }}
            />
          </Card>
        )}
      </Loaded>
    </Page>
  )
}

/** What an org uses of each limit. */
const LimitsUsed = ({ org: { limits, used } }: { readonly org: ResponseBody<"orgs.get"> }) => (
  <ul class="limits">
    {limitNames.map((name) => (
      <li key={name} class="stack tight">
        <span class="row between small">
          <span>{limitLabels[name]}</span>
          <span class="quiet">
            {limitText(name, used[name])} of {limitText(name, limits[name])}
          </span>
        </span>
        <progress
          class={`bar ${limitTone(used[name], limits[name]) ?? ""}`}
          aria-label={`${limitLabels[name]} used`}
          value={Math.min(used[name], limits[name])}
          max={Math.max(1, limits[name])}
        />
      </li>
    ))}
  </ul>
)
