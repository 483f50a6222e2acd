import { contains, useMatches } from "../../client/matches.ts"
import { usePages } from "../../client/queries.ts"
import { Copyable } from "../../components/Copy.tsx"
import { Field, Input, Select } from "../../components/Form.tsx"
import { NoMatch } from "../../components/NoMatch.tsx"
import { Card, Empty, Facts, Page } from "../../components/Page.tsx"
import { Table } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { useSearch } from "../../navigation/router.tsx"
import { actorText, type Entry, type NameOf, sentenceOf } from "./sentences.ts"

/** What entries are about, by the beginning of their actions. */
const subjects = [
  { value: "", label: "All", prefixes: [""] },
  { value: "org", label: "The org", prefixes: ["org."] },
  { value: "projects", label: "Projects", prefixes: ["project.", "deployment.", "docs."] },
  { value: "keys", label: "API keys", prefixes: ["key."] },
  { value: "endpoints", label: "Endpoints", prefixes: ["webhook_endpoint.", "signing_key."] },
  { value: "schedules", label: "Schedules", prefixes: ["schedule."] },
] as const

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

/** The filters of the address, and whether an entry passes them; undefined without a filter. */
const useFilters = (nameOf: NameOf) => {
  const [about, setAbout] = useSearch("about")
  const [text, setText] = useSearch("text")
  const { prefixes } = subjects.find(({ value }) => value === about) ?? subjects[0]
  const matches = (entry: Entry) =>
    prefixes.some((prefix) => entry.action.startsWith(prefix)) &&
    contains(
      text ?? "",
      `${actorText(entry.actor, nameOf)} ${sentenceOf(entry, nameOf)}`,
      entry.action,
      entry.actor,
      entry.target,
      entry.requestId,
    )
  return { about, setAbout, text, setText, matches: about === undefined && text === undefined ? undefined : matches }
}

const Filters = ({ about, setAbout, setText, text }: ReturnType<typeof useFilters>) => (
  <div class="filters">
    <Field label="About">
      <Select value={about ?? ""} onInput={setAbout} options={subjects} />
    </Field>
    <Field label="Name, id or request">
      <Input value={text ?? ""} onInput={setText} autocomplete="off" spellcheck={false} placeholder="gateway" />
    </Field>
  </div>
)

export default () => {
  const orgId = useOrg()
  const all = usePages("audit.list", { orgId, limit: 100 }, ({ entries }) => entries, { refetchMillis: 30_000 })
  const nameOf = useNames(orgId, all.rows ?? [])
  const filters = useFilters(nameOf)
  const pages = useMatches(all, filters.matches)
  return (
    <Page title="Audit log" intro="Who changed what in this org. Entries never change.">
      <Filters {...filters} />
      <Card isPadded={false}>
        <Table
          caption="Audit log"
          {...pages}
          rowKey={({ id }) => id}
          empty={
            filters.matches === undefined ? (
              <Empty icon="list" title="Nothing was changed yet">
                <p>Each change of projects, keys, webhook endpoints and schedules makes an entry here.</p>
              </Empty>
            ) : (
              <NoMatch noun="entry" more={pages.more} />
            )
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
