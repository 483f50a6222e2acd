import { usePages } from "../../client/queries.ts"
import { Copyable } from "../../components/Copy.tsx"
import { Card, Empty, Facts, Page } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { actorText, type Entry, type NameOf, sentenceOf } from "./sentences.ts"

const shownId = 8

/** The names of resources: of those that are still there, and of those that the shown entries created. */
const useNames = (orgId: string, entries: ReadonlyArray<Entry>): NameOf => {
  const { rows: keys = [] } = usePages("keys.list", { orgId, limit: 100 }, (answer) => answer.keys)
  const { rows: projects = [] } = usePages("projects.list", { orgId, limit: 100 }, (answer) => answer.projects)
  const names = new Map([
    ...entries.flatMap(({ details, target }) =>
      typeof details["name"] === "string" ? [[target, details["name"]] as const] : [],
    ),
    ...keys.map(({ id, name }) => [id, name] as const),
    ...projects.map(({ name, projectId }) => [projectId, name] as const),
  ])
  return (id) => names.get(id) ?? `…${id.slice(-shownId)}`
}

const Details = ({ entry }: { readonly entry: Entry }) => (
  <details class="small">
    <summary>Details</summary>
    <Facts
      of={{
        Action: <code>{entry.action}</code>,
        Target: <Copyable text={entry.target} label="Copy the id" />,
        Actor: <code>{entry.actor}</code>,
        Request:
          entry.requestId === null ? "none" : <Copyable text={entry.requestId} label="Copy the id of the request" />,
        Change: <pre>{JSON.stringify(entry.details, undefined, 2)}</pre>,
      }}
    />
  </details>
)

export default () => {
  const orgId = useOrg()
  const pages = usePages("audit.list", { orgId, limit: 50 }, ({ entries }) => entries, { refetchMillis: 30_000 })
  const nameOf = useNames(orgId, pages.rows ?? [])
  return (
    <Page title="Audit log" intro="Who changed what in this org. Entries never change.">
      <Card isPadded={false}>
        <Table
          caption="Audit log"
          {...pages}
          rowKey={({ id }) => id}
          empty={
            <Empty icon="list" title="Nothing was changed yet">
              <p>Each change of projects, keys, webhook endpoints and schedules makes an entry here.</p>
            </Empty>
          }
          columns={[
            {
              title: "What happened",
              cell: (entry) => (
                <div class="stack tight">
                  <span>
                    <strong>{actorText(entry.actor, nameOf)}</strong> {sentenceOf(entry, nameOf)}.
                  </span>
                  <Details entry={entry} />
                </div>
              ),
            },
            { title: "When", align: "fit", cell: ({ at }) => <Time at={at} isRelative /> },
          ]}
        />
      </Card>
    </Page>
  )
}
