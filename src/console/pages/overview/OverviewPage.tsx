import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useData, usePages } from "../../client/queries.ts"
import { Badge } from "../../components/Badge.tsx"
import { useMay } from "../../client/session.tsx"
import { Button, buttonClass } from "../../components/Button.tsx"
import { useHoursAgo } from "../../components/Chart.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { type Column, ListCard } from "../../components/Table.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { Time } from "../../components/Time.tsx"
import { numberText, shortNumber } from "../../components/numbers.ts"
import { Link, orgPath, useChoice } from "../../navigation/router.tsx"
import { outcomeText } from "../deliveries/DeliveryTable.tsx"
import { CreateProject } from "../projects/ProjectsPage.tsx"
import { reasonText } from "../webhooks/endpoints.ts"
import { Activity, type Every, ranges, useRange } from "./Activity.tsx"
import { Health, Replicas } from "./Health.tsx"

/** Less than the 30 days that the operation allows, also when another hour has just begun. */
const hoursOf: Record<Every, number> = { minute: 1, hour: 24, day: 718 }

export default () => {
  const [every, setEvery] = useRange("minute")
  const since = useHoursAgo(hoursOf[every]).toISOString()
  const may = useMay()
  const { data } = useData("orgs.list", { limit: 1 }, { enabled: may("projects.create"), refetchMillis: 10_000 })
  if (data?.orgs.length === 0) return <FirstStart />
  return (
    <Page
      title="Overview"
      intro="Whether the service works, what fails, and who is affected."
      actions={
        <>
          {may("serviceAlerts.list") && (
            <Link class={buttonClass()} to="/alerts">
              Alerts
            </Link>
          )}
          <Segments label="Range" value={every} options={ranges} onChange={setEvery} />
        </>
      }
    >
      <Health />
      <FailingEndpoints since={since} />
      <ActiveOrgs since={since} />
      <Activity every={every} />
      <Replicas />
    </Page>
  )
}

/** What a new service shows in the place of figures that are all zero. */
const FirstStart = () => {
  const [isOpen, setOpen] = useState(false)
  return (
    <Page title="Overview">
      <Card>
        <Empty icon="cube" title="Nothing is here yet">
          <p>A project has API keys, deployments and documentation. Its org has webhooks and jobs.</p>
          <Button look="primary" icon="plus" onClick={() => setOpen(true)}>
            Create your first project
          </Button>
        </Empty>
      </Card>
      {isOpen && <CreateProject onClose={() => setOpen(false)} />}
    </Page>
  )
}

type Org = ResponseBody<"activity.activeOrgs">["orgs"][number]
type Measure = Exclude<keyof Org, "orgId" | "name">

/** What orgs are ranked by, and the page of an org that has the cause. */
const measures: ReadonlyArray<{ readonly value: Measure; readonly label: string; readonly page: string }> = [
  { value: "attempts", label: "Attempts", page: "/deliveries" },
  { value: "failedAttempts", label: "Failed attempts", page: "/endpoints" },
  { value: "validations", label: "Validations", page: "/keys" },
  { value: "jobs", label: "Jobs", page: "/jobs" },
]

const column = ({ label, page, value }: (typeof measures)[number]): Column<Org> => ({
  title: label,
  align: "end",
  cell: (org) => (org[value] === 0 ? "0" : <Link to={orgPath(org.orgId, page)}>{shortNumber(org[value])}</Link>),
})

/** Which orgs use most, by what the reader chooses. */
const ActiveOrgs = ({ since }: { readonly since: string }) => {
  const [by, setBy] = useChoice("by", measures, "attempts")
  const pages = usePages(
    "activity.activeOrgs",
    { by, since, limit: 10 },
    ({ orgs }) => orgs,
    // A ranking of thousands of orgs takes some hundred milliseconds: neither live events nor many open pages ask for
    // it often.
    { isLive: false, refetchMillis: 60_000, keepsPrevious: true },
  )
  return (
    <ListCard
      title="Orgs that use most"
      actions={<Segments label="Rank orgs by" value={by} options={measures} onChange={setBy} />}
      {...pages}
      rowKey={({ orgId }) => orgId}
      empty={
        <Empty icon="people" title={by === "failedAttempts" ? "No attempt has failed" : "No org has done this yet"}>
          <p>Orgs are listed here by what they do, the most first. Counts arrive after a few seconds.</p>
        </Empty>
      }
      columns={[{ title: "Org", link: ({ name, orgId }) => [orgPath(orgId), name] }, ...measures.map(column)]}
    />
  )
}

type Endpoint = ResponseBody<"activity.failing">["endpoints"][number]

const EndpointState = ({ active, deactivatedAt, deactivatedReason, failingSince }: Endpoint) => {
  if (!active) {
    return (
      <span title={reasonText[deactivatedReason ?? ""]}>
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
const FailingEndpoints = ({ since }: { readonly since: string | undefined }) => {
  const pages = usePages(
    "activity.failing",
    { limit: 10, ...(since === undefined ? {} : { since }) },
    ({ endpoints }) => endpoints,
    // Failed attempts are counted some seconds after the live event that announces them.
    { refetchMillis: 10_000, keepsPrevious: true },
  )
  return (
    <ListCard
      id="failing"
      title="Endpoints that fail most"
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
          link: ({ description, endpointId, host, orgId, path }) => [
            orgPath(orgId, `/endpoints/${endpointId}`),
            path === "/" ? host : host + path,
            description,
          ],
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
  )
}
