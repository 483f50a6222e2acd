import { useEffect, useState } from "preact/hooks"
import { call, GatehouseError } from "../client/call.ts"
import { contains, useMatches } from "../client/matches.ts"
import type { OperationId } from "../client/Operations.ts"
import { useData, usePages } from "../client/queries.ts"
import { useMay } from "../client/session.tsx"
import { Icon, type IconName } from "../components/Button.tsx"
import { Dialog } from "../components/Dialog.tsx"
import { Field, Form, Input } from "../components/Form.tsx"
import { routes } from "../pages/routes.ts"
import { useOrgId } from "./org.ts"
import { navigate, orgPath } from "./router.tsx"

/** Reads something by its id. Fails with a 404 when nothing of this kind has the id. */
type Get = (orgId: string, id: string) => Promise<unknown>

/** What has a page and an id. A look-up is skipped for readers who may not call its operations. */
const place = (noun: string, page: string, get: Get, ...needs: ReadonlyArray<OperationId>) => ({
  ...{ noun, page, get, needs },
})
const places = [
  place(
    "delivery",
    "deliveries",
    (orgId, id) => call("deliveries.get", { delivery_id: id }, { orgId }),
    "deliveries.get",
  ),
  place("event", "events", (orgId, id) => call("events.get", { event_id: id }, { orgId }), "events.get"),
  place("job", "jobs", (orgId, id) => call("jobs.get", { job_id: id }, { orgId }), "jobs.get"),
  place(
    "endpoint",
    "endpoints",
    (orgId, id) => call("webhooks.get", { id }, { orgId }),
    "webhooks.get",
    "deliveries.list",
  ),
  place("schedule", "schedules", (orgId, id) => call("schedules.get", { schedule_id: id }, { orgId }), "schedules.get"),
  place("key", "keys", (orgId, id) => call("keys.get", { orgId, id }), "keys.get"),
]
type Place = ReturnType<typeof place>

const isMissing = (error: unknown) => error instanceof GatehouseError && error.status === 404

/** The page of what has the id. Fails when a place could not be asked and no other has the id. */
const findOne = async (asked: ReadonlyArray<Place>, orgId: string, id: string) => {
  const results = await Promise.allSettled(asked.map(({ get }) => get(orgId, id)))
  const found = asked.find((_, i) => results[i]!.status === "fulfilled")
  if (found !== undefined) return orgPath(orgId, `/${found.page}/${id}`)
  const failed = results.find((result) => result.status === "rejected" && !isMissing(result.reason))
  if (failed?.status === "rejected") throw failed.reason
  return undefined
}

/** Ids of a text that are looked for at most. */
const maxIds = 5

/** The ids in a text, such as a header or a line of a log, without that of the org. */
const idsIn = (text: string, orgId: string | undefined) => {
  const ids = text.toUpperCase().match(/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b/g) ?? []
  return [...new Set(ids)].filter((id) => id !== orgId).slice(0, maxIds)
}

/** The page of the first id that something has, in the first of the orgs: an org that is named comes first. */
const find = async (asked: ReadonlyArray<Place>, orgIds: ReadonlyArray<string>, ids: ReadonlyArray<string>) => {
  const orgs = await Promise.allSettled(ids.map((orgId) => call("orgs.get", { orgId })))
  const named = ids.filter((_, i) => orgs[i]!.status === "fulfilled")
  for (const orgId of new Set([...named, ...orgIds])) {
    for (const id of ids) {
      const page = named.includes(id) ? undefined : await findOne(asked, orgId, id)
      if (page !== undefined) return page
    }
  }
  return named[0] && orgPath(named[0])
}

const listed = (asked: ReadonlyArray<Place>) => {
  const nouns = asked.map(({ noun }) => noun)
  return `${nouns.slice(0, -1).join(", ")} or ${nouns.at(-1)}`
}

/** What a reader can go to. */
interface Target {
  readonly to: string
  readonly label: string
  readonly kind: string
  readonly icon: IconName
}

/** What a page of a list can do, when it is opened with `?new`. */
const actions: ReadonlyArray<{ readonly label: string; readonly page: string; readonly needs: OperationId }> = [
  { label: "Create a key", page: "keys", needs: "keys.createForProject" },
  { label: "Create a project", page: "projects", needs: "projects.create" },
  { label: "Add an endpoint", page: "endpoints", needs: "webhooks.create" },
  { label: "Publish an event", page: "events", needs: "events.publish" },
  { label: "Create a job", page: "jobs", needs: "jobs.create" },
  { label: "Create a schedule", page: "schedules", needs: "schedules.create" },
]

/** Orgs besides that of the page in which an id is looked for. */
const maxOrgs = 20
const maxTargets = 12

/** Pages, actions, orgs, and what has a name in the org of the page. */
const useTargets = (text: string) => {
  const orgId = useOrgId()
  const may = useMay()
  const hasOrg = orgId !== undefined
  const list = <Id extends OperationId>(id: Id) => ({ enabled: may(id) && hasOrg, isLive: false })
  const isNamed = ({ name }: { readonly name: string }) => contains(text, name, `org ${name}`)
  const all = usePages("orgs.list", { limit: 100 }, ({ orgs }) => orgs, { enabled: may("orgs.list"), isLive: false })
  const { rows: orgs } = useMatches(all, text.trim() === "" || idsIn(text, undefined).length > 0 ? undefined : isNamed)
  const { data: endpoints } = useData("webhooks.list", {}, list("webhooks.list"))
  const { data: keys } = useData("keys.list", { orgId: orgId ?? "", limit: 100 }, list("keys.list"))
  const { data: projects } = useData("projects.list", { orgId: orgId ?? "", limit: 100 }, list("projects.list"))
  const { data: schedules } = useData("schedules.list", {}, list("schedules.list"))
  const at = (page: string) => orgPath(orgId ?? "", page)
  const targetsOf = <Row,>(
    kind: string,
    icon: IconName,
    rows: ReadonlyArray<Row> = [],
    of: (row: Row) => [string, string],
  ) =>
    rows.map((row): Target => {
      const [to, label] = of(row)
      return { to, label, kind, icon }
    })
  const targets: ReadonlyArray<Target> = [
    ...routes.flatMap(({ nav, needs, path }) =>
      nav === undefined || !may(...needs) || (path.includes(":orgId") && !hasOrg)
        ? []
        : [{ to: path.replace(":orgId", orgId ?? ""), label: nav.label, kind: "page", icon: nav.icon }],
    ),
    ...targetsOf(
      "action",
      "plus",
      actions.filter(({ needs }) => hasOrg && may(needs)),
      ({ label, page }) => [at(`/${page}?new=1`), label],
    ),
    ...targetsOf("org", "people", orgs, ({ name, orgId }) => [orgPath(orgId), name]),
    ...targetsOf("endpoint", "hook", endpoints?.webhook_endpoints, ({ description, url, webhook_endpoint_id }) => [
      at(`/endpoints/${webhook_endpoint_id}`),
      description === null ? url : `${url} · ${description}`,
    ]),
    ...targetsOf("key", "key", keys?.keys, ({ id, name, prefix }) => [at(`/keys/${id}`), `${name} · ${prefix}`]),
    ...targetsOf("project", "cube", projects?.projects, ({ name, projectId }) => [at(`/projects/${projectId}`), name]),
    ...targetsOf("schedule", "clock", schedules?.schedules, ({ cron, schedule_id, workflow }) => [
      at(`/schedules/${schedule_id}`),
      `${workflow} · ${cron}`,
    ]),
  ]
  return { targets, isSearching: may("orgs.list") && orgs === undefined }
}

const FindDialog = ({ onClose, wanted }: { readonly wanted: string; readonly onClose: () => void }) => {
  const orgId = useOrgId()
  const may = useMay()
  const [text, setText] = useState(wanted)
  const [chosen, setChosen] = useState(0)
  const [missing, setMissing] = useState<readonly [ids: string, orgs: number]>()
  const { isSearching, targets } = useTargets(text)
  const asked = places.filter(({ needs }) => may(...needs))
  const ids = idsIn(text, orgId)
  const found =
    ids.length > 0
      ? []
      : targets.filter(({ kind, label }) => contains(text, label, `${kind} ${label}`)).slice(0, maxTargets)
  const isMissed = ids.length > 0 && missing?.[0] === ids.join()
  const error = isMissed
    ? `No ${listed(asked)} of ${missing[1] > 1 ? `these ${missing[1]} orgs` : "this org"} has the id ${ids.join(" or ")}. It may be of another org, or older than what is kept.`
    : ids.length === 0 && found.length === 0 && !isSearching
      ? "Nothing has this name, and the text has no id. An id has 26 letters and digits."
      : undefined
  const go = (to: string) => {
    onClose()
    navigate(to)
  }
  const open = async () => {
    if (ids.length === 0) return go((found[chosen] ?? found[0])!.to)
    const { orgs } = may("orgs.list") ? await call("orgs.list", { limit: maxOrgs }) : { orgs: [] }
    const orgIds = new Set([...(orgId === undefined ? [] : [orgId]), ...orgs.map(({ orgId }) => orgId)])
    const page = await find(asked, [...orgIds], ids)
    if (page === undefined) return setMissing([ids.join(), orgIds.size])
    go(page)
  }
  const press = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key]
    if (step === undefined || found.length === 0) return
    event.preventDefault()
    setChosen((now) => (now + step + found.length) % found.length)
  }
  return (
    <Dialog title="Find" onClose={onClose}>
      <Form submit="Open" isReady={found.length > 0 || (ids.length > 0 && !isMissed)} onSubmit={open}>
        <Field
          label="Name, id or line of a log"
          hint="A page, an org by its name or id, an endpoint, a key; the webhook-id header; any text that has an id."
          error={error}
        >
          <Input
            value={text}
            onInput={(text) => {
              setText(text)
              setChosen(0)
            }}
            onKeyDown={press}
            role="combobox"
            aria-expanded={found.length > 0}
            aria-controls="found"
            aria-activedescendant={found.length > 0 ? `found-${chosen}` : undefined}
            autocomplete="off"
            spellcheck={false}
            placeholder="webhook-id: 01K…"
          />
        </Field>
        {found.length > 0 && (
          <div id="found" class="found" role="listbox" aria-label="Found">
            {found.map(({ icon, kind, label, to }, i) => (
              <div
                key={to}
                id={`found-${i}`}
                role="option"
                tabIndex={-1}
                aria-selected={i === chosen}
                onPointerMove={() => setChosen(i)}
                onClick={() => go(to)}
              >
                <Icon name={icon} />
                <span class="truncate">{label}</span>
                <span class="quiet small">{kind}</span>
              </div>
            ))}
          </div>
        )}
      </Form>
    </Dialog>
  )
}

const isShortcut = ({ altKey, ctrlKey, key, metaKey, shiftKey }: KeyboardEvent) =>
  key.toLowerCase() === "k" && ctrlKey !== metaKey && !altKey && !shiftKey

const asks = new EventTarget()

/** Opens the dialog that finds, with the beginning of a text. */
export const openFind = (text = "") => void asks.dispatchEvent(new CustomEvent("find", { detail: text }))

/** Opens the dialog that finds, from the navigation or from the bar of narrow screens. */
export const FindButton = () => (
  <button
    type="button"
    class="nav-link"
    title="Find"
    aria-haspopup="dialog"
    aria-keyshortcuts="Control+K Meta+K"
    onClick={() => openFind()}
  >
    <Icon name="search" />
    <span class="label">Find</span>
    <kbd aria-hidden="true">{navigator.platform.startsWith("Mac") ? "⌘K" : "Ctrl K"}</kbd>
  </button>
)

/** Goes to whatever has a name or an id: by Ctrl+K on every page. */
export const Find = () => {
  const [wanted, setWanted] = useState<string>()
  useEffect(() => {
    const open = (event: Event) => setWanted((event as CustomEvent<string>).detail)
    const press = (event: KeyboardEvent) => {
      // Another dialog stays alone.
      if (!isShortcut(event) || document.querySelector("dialog[open]:not(.menu)") !== null) return
      event.preventDefault()
      openFind()
    }
    asks.addEventListener("find", open)
    document.addEventListener("keydown", press)
    return () => {
      asks.removeEventListener("find", open)
      document.removeEventListener("keydown", press)
    }
  }, [])
  return wanted === undefined ? null : <FindDialog wanted={wanted} onClose={() => setWanted(undefined)} />
}
