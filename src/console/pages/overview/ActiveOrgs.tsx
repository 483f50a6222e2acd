import type { Answer } from "../../client/Operations.ts"
import { usePages } from "../../client/queries.ts"
import { shortNumber } from "../../components/numbers.ts"
import { Card, Empty } from "../../components/Page.tsx"
import { type Column, Table } from "../../components/Table.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { Link, orgPath, useSearch } from "../../navigation/router.tsx"

type Org = Answer<"activity.activeOrgs">["orgs"][number]
type Measure = Exclude<keyof Org, "orgId" | "name">

/** What orgs are ranked by, and the page of an org that has the cause. */
const measures: ReadonlyArray<{ readonly value: Measure; readonly label: string; readonly page: string }> = [
  { value: "attempts", label: "Attempts", page: "/deliveries" },
  { value: "failedAttempts", label: "Failed", page: "/endpoints" },
  { value: "validations", label: "Validations", page: "/keys" },
  { value: "jobs", label: "Jobs", page: "/jobs" },
]

const column = ({ label, page, value }: (typeof measures)[number]): Column<Org> => ({
  title: label,
  align: "end",
  cell: (org) => (org[value] === 0 ? "0" : <Link to={orgPath(org.orgId, page)}>{shortNumber(org[value])}</Link>),
})

/** Which orgs use most, by what the reader chooses. */
export const ActiveOrgs = ({ since }: { readonly since: string }) => {
  const [text, setText] = useSearch("by")
  const by = measures.find(({ value }) => value === text)?.value ?? "attempts"
  const pages = usePages(
    "activity.activeOrgs",
    { by, since, limit: 10 },
    ({ orgs }) => orgs,
    // A ranking of thousands of orgs takes some hundred milliseconds: neither live events nor many open pages ask for it often.
    { isLive: false, refetchMillis: 60_000, keepsPrevious: true },
  )
  return (
    <Card
      title="Orgs that use most"
      isPadded={false}
      actions={
        <Segments
          label="Rank orgs by"
          value={by}
          options={measures}
          onChange={(value) => setText(value === "attempts" ? undefined : value)}
        />
      }
    >
      <Table
        caption="Orgs that use most"
        {...pages}
        rowKey={({ orgId }) => orgId}
        empty={
          <Empty icon="people" title={by === "failedAttempts" ? "No attempt has failed" : "No org has done this yet"}>
            <p>Orgs are listed here by what they do, the most first. Counts arrive after a few seconds.</p>
          </Empty>
        }
        columns={[
          {
            title: "Org",
            cell: ({ name, orgId }) => (
              <Link class="main" to={orgPath(orgId)}>
                {name}
              </Link>
            ),
          },
          ...measures.map(column),
        ]}
      />
    </Card>
  )
}
