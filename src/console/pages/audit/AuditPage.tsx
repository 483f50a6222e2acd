import { useEffect, useState } from "preact/hooks"
import { call } from "../../client/call.ts"
import type { ResponseBody } from "../../client/Operations.ts"
import { contains, useMatches } from "../../client/matches.ts"
import { usePages } from "../../client/queries.ts"
import { personName } from "../../client/session.tsx"
import { Copyable } from "../../components/Button.tsx"
import { fieldWords, pathWords } from "../../components/ErrorBox.tsx"
import { Filter, Filters } from "../../components/Form.tsx"
import { Empty, Facts, Page } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { counted } from "../../components/numbers.ts"
import { durationText, Time, TimeFilter } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath, useQuery } from "../../navigation/router.tsx"
import { limitLabels, limitNames } from "../orgs/limits.ts"
import { useEndpoints } from "../webhooks/endpoints.ts"

/** What entries are about, by the beginning of their actions. */
const subjects = [
  { value: "org", label: "The org", prefixes: ["org."] },
  { value: "projects", label: "Projects", prefixes: ["project.", "deployment.", "docs."] },
  { value: "keys", label: "API keys", prefixes: ["key.", "role."] },
  { value: "endpoints", label: "Endpoints", prefixes: ["webhook_endpoint.", "signing_key.", "resend."] },
  { value: "alerts", label: "Alerts", prefixes: ["alert."] },
  { value: "schedules", label: "Jobs and schedules", prefixes: ["job.", "job_sweep.", "schedule.", "workflow."] },
] as const

const shownId = 8
const shortened = (id: string) => `…${id.slice(-shownId)}`

/** The keys and projects that entries are about or were made by, each with what reads its name. */
const namedIn = (orgId: string, entries: ReadonlyArray<Entry>) => {
  type Named = readonly [id: string, get: () => Promise<{ readonly name: string }>]
  const key = (id: string): Named => [id, () => call("keys.get", { orgId, id })]
  const project = (projectId: string): Named => [projectId, () => call("projects.get", { projectId })]
  return new Map(
    entries.flatMap(({ action, actor, details, target }) => [
      ...(actor.startsWith("key:") ? [key(actor.slice("key:".length))] : []),
      ...(action.startsWith("key.") && action !== "key.import" ? [key(target)] : []),
      ...(action.startsWith("project.") || action.startsWith("docs.") ? [project(target)] : []),
      ...(typeof details["projectId"] === "string" ? [project(details["projectId"])] : []),
    ]),
  )
}

/** The names of resources: of those that are still there, and of those that the shown entries created. */
const useNames = (orgId: string, entries: ReadonlyArray<Entry>): NameOf => {
  const [read, setRead] = useState<ReadonlyMap<string, string>>(new Map())
  const { rows: keys } = usePages("keys.list", { orgId, limit: 100, order: "newest" }, (response) => response.keys)
  const { rows: projects } = usePages("projects.list", { orgId, limit: 100 }, (response) => response.projects)
  const ofEndpoints = entries.filter(({ action }) => action.startsWith("webhook_endpoint."))
  const { byId } = useEndpoints(ofEndpoints.map(({ target }) => target))
  const names = new Map([
    ...entries.flatMap(({ details, target }) =>
      [details["name"], details["host"]]
        .filter((name) => typeof name === "string")
        .map((name) => [target, name] as const),
    ),
    ...[...byId].map(([id, { description, url }]) => [id, description ?? new URL(url).host] as const),
    ...(keys ?? []).map(({ id, name }) => [id, name] as const),
    ...(projects ?? []).map(({ name, projectId }) => [projectId, name] as const),
    ...read,
  ])
  // What neither the entries nor the first page of a list name is read by its id; what is gone has no name.
  const missing = keys && projects ? [...namedIn(orgId, entries)].filter(([id]) => !names.has(id)) : []
  useEffect(() => {
    const readName = async ([id, get]: (typeof missing)[number]) =>
      [id, (await get().catch(() => undefined))?.name ?? shortened(id)] as const
    if (missing.length > 0)
      void Promise.all(missing.map(readName)).then((found) => setRead(new Map([...read, ...found])))
  }, [missing.map(([id]) => id).join()])
  return (id) => names.get(id) ?? shortened(id)
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
  const { about, by, since, text, until } = useQuery()
  const { prefixes } = subjects.find(({ value }) => value === about) ?? { prefixes: [""] }
  const matches = (entry: Entry) =>
    prefixes.some((prefix) => entry.action.startsWith(prefix)) &&
    (by === undefined || entry.actor === by) &&
    (since === undefined || Date.parse(entry.at) >= Date.parse(since)) &&
    (until === undefined || Date.parse(entry.at) < Date.parse(until)) &&
    contains(
      text ?? "",
      `${actorText(entry, nameOf)} ${sentenceOf(entry, nameOf)}`,
      entry.action,
      entry.actor,
      entry.target,
      entry.requestId,
    )
  const isFiltered = [about, text, by, since, until].some((value) => value !== undefined)
  return { by, matches: isFiltered ? matches : undefined }
}

/** What the sentence of an entry has already. */
const said = ["host", "url", "urlBefore", "secretChanged"]

/** The details with a field for each value of an object: `limits.endpoints`. */
const flat = (details: EntryDetails): EntryDetails =>
  Object.fromEntries(
    Object.entries(details).flatMap(([field, value]) =>
      value instanceof Object && !Array.isArray(value)
        ? Object.entries(value).map(([name, one]) => [`${field}.${name}`, one])
        : [[field, value]],
    ),
  )

/** The limit that a field of the details is; undefined for any other field. */
const limitOf = (field: string) => limitNames.find((name) => field === `limits.${name}`)

const valueText = (field: string, value: unknown) => {
  if (value === null) return limitOf(field) === undefined ? "none" : "default"
  return typeof value === "string" ? value : JSON.stringify(value)
}

const nameText = (field: string) => {
  const limit = limitOf(field)
  return limit === undefined ? pathWords(field) : limitLabels[limit]
}

/** The values that each update has set, with those that earlier entries had set; the newest entry is first. */
const changesOf = (entries: ReadonlyArray<Entry>) => {
  const known = new Map<string, EntryDetails>()
  const changes = new Map<string, ReadonlyArray<string>>()
  for (const { action, details: all, id, target } of entries.toReversed()) {
    const [before, details] = [known.get(target) ?? {}, flat(all)]
    known.set(target, { ...before, ...details })
    const texts = Object.entries(details).flatMap(([field, value]) => {
      const [from, to] = [field in before ? valueText(field, before[field]) : undefined, valueText(field, value)]
      if (said.includes(field) || from === to) return []
      return [`${nameText(field)}: ${from === undefined ? "" : `from ${from} `}to ${to}`]
    })
    if (action.endsWith(".update")) changes.set(id, texts)
  }
  return changes
}

/** The page of what an entry is about, while it is there. */
const pageOf = ({ action, details, target }: Entry) => {
  const [kind, verb] = action.split(".") as [string, string]
  if (verb === "delete") return undefined
  const pages: Readonly<Record<string, string>> = {
    key: `/keys/${target}`,
    webhook_endpoint: `/endpoints/${target}`,
    schedule: `/schedules/${target}`,
    project: `/projects/${target}`,
    docs: `/projects/${target}/docs`,
    deployment: `/projects/${String(details["projectId"])}`,
    job: `/jobs/${target}`,
    workflow: `/jobs?workflow=${encodeURIComponent(target)}`,
  }
  return pages[kind]
}

/** In no text of the service. */
const placeOfName = "\0"

/** What happened, with a link to what it is about. */
const Sentence = ({ entry, nameOf }: { readonly entry: Entry; readonly nameOf: NameOf }) => {
  const orgId = useOrg()
  const page = pageOf(entry)
  const name = nameOf(entry.target)
  const link =
    page === undefined ? (
      name
    ) : (
      <Link class="underlined" to={orgPath(orgId, page)}>
        {name}
      </Link>
    )
  // Its name may be a word of the sentence.
  const [before, ...after] = sentenceOf(entry, (id) => (id === entry.target ? placeOfName : nameOf(id))).split(
    placeOfName,
  )
  return (
    <span class="anywhere">
      {before}
      {after.length > 0 && <bdi>{link}</bdi>}
      {after.join(name)}
    </span>
  )
}

export default () => {
  const orgId = useOrg()
  const all = usePages("audit.list", { orgId, limit: 100 }, ({ entries }) => entries, { refetchMillis: 30_000 })
  const nameOf = useNames(orgId, all.rows ?? [])
  const changes = changesOf(all.rows ?? [])
  const filters = useFilters(nameOf)
  const pages = useMatches(all, filters.matches)
  const who = new Map((all.rows ?? []).map((entry) => [entry.actor, actorText(entry, nameOf)]))
  const actors = [...who].map(([value, label]) => ({ value, label }))
  return (
    <Page title="Audit log" intro="Who changed what in this org. Entries never change.">
      <Filters>
        <Filter label="By" name="by" options={actors} />
        <Filter label="About" name="about" options={subjects} />
        <Filter label="Name, id or request" name="text" placeholder="gateway" />
        <TimeFilter />
      </Filters>
      <ListCard
        caption="Audit log"
        {...pages}
        rowKey={({ id }) => id}
        filtered={filters.matches && "entry"}
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
                  <strong title={entry.person?.email ?? undefined}>{actorText(entry, nameOf)}</strong>{" "}
                  <Sentence entry={entry} nameOf={nameOf} />.
                </span>
                {changes.get(entry.id)?.map((text) => (
                  <span key={text} class="quiet small anywhere">
                    {text}
                  </span>
                ))}
                <Details entry={entry} />
              </div>
            ),
          },
          { title: "When", align: "fit", cell: ({ at }) => <Time at={at} isRelative /> },
        ]}
      />
    </Page>
  )
}

type Entry = ResponseBody<"audit.list">["entries"][number]
type EntryDetails = Entry["details"]

/** The name of a resource, or a shortened id. */
type NameOf = (id: string) => string

const text = (details: EntryDetails, field: string) => {
  const value = details[field]
  return typeof value === "string" ? value : undefined
}

const listed = (words: ReadonlyArray<string>) =>
  words.length < 2 ? words[0] : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`

/** "its name and rate limit". */
const changedFields = (details: EntryDetails) => {
  const { secretChanged, url } = details
  const others = Object.keys(details).filter((name) => !["host", "secretChanged", "url", "urlBefore"].includes(name))
  const fields = [
    ...(url === undefined ? [] : ["url"]),
    ...others,
    ...(secretChanged === true ? ["secretChanged"] : []),
  ]
  return fields.length === 0 ? "nothing" : `the ${listed(fields.map(fieldWords))}`
}

/** Whether nothing else of an endpoint has changed. */
const isActivation = ({ active, secretChanged, ...rest }: EntryDetails) =>
  active === true && secretChanged !== true && Object.keys(rest).length === 0

/** From what to what the URL was changed. What may be a token in it is not recorded. */
const urlText = ({ url, urlBefore }: EntryDetails) => {
  if (url === undefined) return ""
  if (url === urlBefore) return ", in a part that is hidden"
  const text = `from ${String(urlBefore)} to ${String(url)}`
  return `, ${text}${text.includes("…") ? " (… hides what may be secret)" : ""}`
}

const reasons: Readonly<Record<string, string>> = {
  gone: "because its receiver said that it is gone",
  failing: "because it failed for too long",
  by_request: "by request",
}

const enabledOf = ({ details }: Entry) => {
  const isOnly = Object.keys(details).length === 1
  return isOnly && details["enabled"] === true
    ? "enabled"
    : isOnly && details["enabled"] === false
      ? "disabled"
      : undefined
}

const overlapText = (details: EntryDetails) => {
  const seconds = details["overlapSeconds"]
  if (typeof seconds !== "number") return ""
  if (seconds === 0) return "; the old one ended at once"
  return `; the old one stays valid for ${durationText(seconds * 1_000)}`
}

type Tell = (entry: Entry, target: string, nameOf: NameOf) => string

/** What happened, after who did it. */
const sentences: Record<Entry["action"], Tell> = {
  "org.create": ({ details }) => `created the org ${text(details, "name") ?? ""}`,
  "org.update": ({ details }) => `changed ${changedFields(details)} of the org`,
  "org.delete": () => "deleted the org",
  "org.erase": () => "erased everything of the deleted org",
  "project.create": (_, target) => `created the project ${target}`,
  "project.update": ({ details }, target) => `changed ${changedFields(details)} of the project ${target}`,
  "project.delete": (_, target) => `deleted the project ${target}`,
  "project.link": ({ details }, target) =>
    `linked the project ${target} to ${text(details, "hostOwner")}/${text(details, "hostRepo")}`,
  "project.unlink": (_, target) => `unlinked the repository of the project ${target}`,
  "docs.update": (_, target) => `set where the documentation of the project ${target} is`,
  "docs.delete": (_, target) => `removed the documentation of the project ${target}`,
  "deployment.promote": ({ details }, target, nameOf) =>
    `made the deployment ${target} current in the project ${nameOf(text(details, "projectId") ?? "")}`,
  "key.create": (_, target) => `created the key ${target}`,
  "key.import": ({ details }) => `imported ${counted(Number(details["keys"]), "key")}`,
  "key.rotate": ({ details }, target) => `rotated the key ${target}${overlapText(details)}`,
  "key.update": (entry, target) => {
    const state = enabledOf(entry)
    return state === undefined
      ? `changed ${changedFields(entry.details)} of the key ${target}`
      : `${state} the key ${target}`
  },
  "key.leaked": ({ details }, target) =>
    `disabled the key ${target}, because ${text(details, "reporter") ?? "a scanner"} found it in public`,
  "key.delete": (_, target) => `deleted the key ${target}`,
  "role.put": ({ details }) => `set the permissions of the role ${text(details, "name")}`,
  "role.delete": ({ details }) => `deleted the role ${text(details, "name")}`,
  "webhook_endpoint.create": ({ details }) => `created a webhook endpoint at ${text(details, "host") ?? "a host"}`,
  "webhook_endpoint.update": ({ details }, target) =>
    isActivation(details)
      ? `activated the endpoint ${target}`
      : `changed ${changedFields(details)} of the endpoint ${target}${urlText(details)}`,
  "webhook_endpoint.delete": (_, target) => `deleted the webhook endpoint ${target}`,
  "webhook_endpoint.deactivate": ({ details }, target) =>
    `deactivated the webhook endpoint ${target} ${reasons[text(details, "reason") ?? ""] ?? ""}`,
  "resend.start": ({ details }) => `resent ${counted(Number(details["count"]), "delivery", "deliveries")} by a filter`,
  "resend.cancel": () => "canceled the rest of a resend",
  "job.retry": ({ details }, target) =>
    `retried the job ${target}${details["inputChanged"] === true ? ", with another input" : ""}`,
  "job_sweep.start": ({ details }) =>
    `${details["kind"] === "retry" ? "retried" : "canceled"} ${counted(Number(details["count"]), "job")} by a filter`,
  "job_sweep.cancel": () => "canceled the rest of a change of jobs",
  "signing_key.rotate": () => "rotated the signing key of webhooks; both sign for 24 hours",
  "schedule.create": ({ details }) => `created a schedule of ${text(details, "workflow")}: ${text(details, "cron")}`,
  "schedule.update": ({ details }, target) => `changed ${changedFields(details)} of the schedule ${target}`,
  "schedule.delete": (_, target) => `deleted the schedule ${target}`,
  "workflow.set": ({ target }) => `set the limits of the workflow ${target}`,
  "workflow.delete": ({ target }) => `deleted the limits of the workflow ${target}`,
  "alert.create": (_, target) => `created the alert ${target}`,
  "alert.update": ({ details }, target) => `changed ${changedFields(details)} of the alert ${target}`,
  "alert.delete": (_, target) => `deleted the alert ${target}`,
  "alert.off": (_, target) => `turned off the alert ${target}, whose target was not reached for a day`,
  "event_type.create": ({ target }) => `added the event type ${target} to the catalogue`,
  "event_type.update": ({ target }) => `changed the event type ${target} in the catalogue`,
  "session.create": () => "signed in",
  "session.end": ({ details }) =>
    details["reason"] === "role" ? "was signed out: the role of the session is gone" : "signed out",
  "portal_link.create": ({ target }) => `made the portal link ${target}`,
  "portal_link.open": ({ target }) => `opened the portal link ${target}`,
  "portal_link.revoke": ({ target }) => `revoked the portal link ${target}`,
  "event_type.delete": ({ target }) => `deleted the event type ${target} from the catalogue`,
}

/** What an entry says, without its actor. */
export const sentenceOf = (entry: Entry, nameOf: NameOf) =>
  // An action of a newer server has no sentence here yet.
  (sentences[entry.action] as Tell | undefined)?.(entry, nameOf(entry.target), nameOf) ??
  `did ${fieldWords(entry.action)} ${nameOf(entry.target)}`

/** Who did it. */
export const actorText = ({ actor, person }: Pick<Entry, "actor" | "person">, nameOf: NameOf) => {
  if (person !== null) return personName(person)
  const [kind, id] = actor.split(":") as [string, string | undefined]
  if (id === undefined)
    return (
      { administrator: "The administrator", anonymous: "Somebody on this machine", service: "Gatehouse" }[kind] ?? kind
    )
  return kind === "portal" ? "Somebody in the portal" : `The key ${nameOf(id)}`
}
