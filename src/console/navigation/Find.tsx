import { useEffect, useState } from "preact/hooks"
import { call, GatehouseError } from "../client/call.ts"
import { contains } from "../client/matches.ts"
import type { OperationId } from "../client/Operations.ts"
import { useData } from "../client/queries.ts"
import { useMay } from "../client/session.tsx"
import { Icon, type IconName } from "../components/Button.tsx"
import { Dialog } from "../components/Dialog.tsx"
import { Field, Form, Input } from "../components/Form.tsx"
import { routes } from "../pages/routes.ts"
import { useOrgId } from "./org.ts"
import { navigate, orgPath } from "./router.tsx"

interface Place {
  /** The operations that the look-up calls. It is skipped for readers who may not call them. */
  readonly needs: ReadonlyArray<OperationId>
  readonly noun: string
  /** The page of the org, before the id. */
  readonly page: string
  /** Fails with a 404 when nothing of this kind has the id. */
  readonly get: (orgId: string, id: string) => Promise<unknown>
}

/** What has a page and an id. */
const places: ReadonlyArray<Place> = [
  {
    needs: ["deliveries.get"],
    noun: "delivery",
    page: "deliveries",
    get: (orgId, delivery_id) => call("deliveries.get", { delivery_id }, { orgId }),
  },
  {
    needs: ["events.get"],
    noun: "event",
    page: "events",
    get: (orgId, event_id) => call("events.get", { event_id }, { orgId }),
  },
  {
    needs: ["jobs.get"],
    noun: "job",
    page: "jobs",
    get: (orgId, job_id) => call("jobs.get", { job_id }, { orgId }),
  },
  {
    needs: ["webhooks.get", "deliveries.list"],
    noun: "endpoint",
    page: "endpoints",
    get: (orgId, id) => call("webhooks.get", { id }, { orgId }),
  },
  {
    needs: ["schedules.get"],
    noun: "schedule",
    page: "schedules",
    get: (orgId, schedule_id) => call("schedules.get", { schedule_id }, { orgId }),
  },
  {
    needs: ["keys.get"],
    noun: "key",
    page: "keys",
    get: (orgId, id) => call("keys.get", { orgId, id }),
  },
]

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

/** The page of the first id that something has, in the first of the orgs. */
const find = async (asked: ReadonlyArray<Place>, orgIds: ReadonlyArray<string>, ids: ReadonlyArray<string>) => {
  for (const orgId of orgIds) {
    for (const id of ids) {
      const page = id === orgId ? orgPath(id) : await findOne(asked, orgId, id)
      if (page !== undefined) return page
    }
  }
  return undefined
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
const useTargets = () => {
  const orgId = useOrgId()
  const may = useMay()
  const hasOrg = orgId !== undefined
  const list = <Id extends OperationId>(id: Id) => ({ enabled: may(id) && hasOrg, isLive: false })
  const { data: orgs } = useData("orgs.list", { limit: 100 }, { enabled: may("orgs.list"), isLive: false })
  const { data: endpoints } = useData("webhooks.list", {}, list("webhooks.list"))
  const { data: keys } = useData("keys.list", { orgId: orgId ?? "", limit: 100 }, list("keys.list"))
  const { data: projects } = useData("projects.list", { orgId: orgId ?? "", limit: 100 }, list("projects.list"))
  const { data: schedules } = useData("schedules.list", {}, list("schedules.list"))
  const at = (page: string) => orgPath(orgId ?? "", page)
  const targets: ReadonlyArray<Target> = [
    ...routes.flatMap(({ nav, needs, path }) =>
      nav === undefined || !may(...needs) || (path.includes(":orgId") && !hasOrg)
        ? []
        : [{ to: path.replace(":orgId", orgId ?? ""), label: nav.label, kind: "page", icon: nav.icon }],
    ),
    ...(hasOrg
      ? actions.flatMap(({ label, needs, page }) =>
          may(needs) ? [{ to: at(`/${page}?new=1`), label, kind: "action", icon: "plus" as const }] : [],
        )
      : []),
    ...(orgs?.orgs ?? []).map(({ name, orgId }) => ({
      to: orgPath(orgId),
      label: name,
      kind: "org",
      icon: "people" as const,
    })),
    ...(endpoints?.webhook_endpoints ?? []).map(({ description, url, webhook_endpoint_id }) => ({
      to: at(`/endpoints/${webhook_endpoint_id}`),
      label: description === null ? url : `${url} · ${description}`,
      kind: "endpoint",
      icon: "hook" as const,
    })),
    ...(keys?.keys ?? []).map(({ id, name, prefix }) => ({
      to: at(`/keys/${id}`),
      label: `${name} · ${prefix}`,
      kind: "key",
      icon: "key" as const,
    })),
    ...(projects?.projects ?? []).map(({ name, projectId }) => ({
      to: at(`/projects/${projectId}`),
      label: name,
      kind: "project",
      icon: "cube" as const,
    })),
    ...(schedules?.schedules ?? []).map(({ cron, schedule_id, workflow }) => ({
      to: at(`/schedules/${schedule_id}`),
      label: `${workflow} · ${cron}`,
      kind: "schedule",
      icon: "clock" as const,
    })),
  ]
  const others = (orgs?.orgs ?? []).map(({ orgId }) => orgId).filter((id) => id !== orgId)
  return { targets, orgIds: [...(hasOrg ? [orgId] : []), ...others.slice(0, maxOrgs)] }
}

const FindDialog = ({ onClose }: { readonly onClose: () => void }) => {
  const orgId = useOrgId()
  const may = useMay()
  const [text, setText] = useState("")
  const [chosen, setChosen] = useState(0)
  const [missing, setMissing] = useState<string>()
  const { orgIds, targets } = useTargets()
  const asked = places.filter(({ needs }) => may(...needs))
  const ids = idsIn(text, orgId)
  const found =
    ids.length > 0
      ? []
      : targets.filter(({ kind, label }) => contains(text, label, `${kind} ${label}`)).slice(0, maxTargets)
  const isMissed = ids.length > 0 && missing === ids.join()
  const error = isMissed
    ? `No ${listed(asked)} of ${orgIds.length > 1 ? `these ${orgIds.length} orgs` : "this org"} has the id ${ids.join(" or ")}. It may be of another org, or older than what is kept.`
    : ids.length === 0 && found.length === 0
      ? "Nothing has this name, and the text has no id. An id has 26 letters and digits."
      : undefined
  const go = (to: string) => {
    onClose()
    navigate(to)
  }
  const open = async () => {
    const target = found[chosen] ?? found[0]
    const page = ids.length > 0 ? await find(asked, orgIds, ids) : target?.to
    if (page === undefined) return setMissing(ids.join())
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
          hint="A page, an org, an endpoint, a key; the webhook-id header; any text that has an id."
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

/** Opens the dialog that finds, from the navigation or from the bar of narrow screens. */
export const FindButton = () => (
  <button
    type="button"
    class="nav-link"
    title="Find"
    aria-haspopup="dialog"
    aria-keyshortcuts="Control+K Meta+K"
    onClick={() => asks.dispatchEvent(new Event("find"))}
  >
    <Icon name="search" />
    <span class="label">Find</span>
    <kbd aria-hidden="true">{navigator.platform.startsWith("Mac") ? "⌘K" : "Ctrl K"}</kbd>
  </button>
)

/** Goes to whatever has a name or an id: by Ctrl+K on every page. */
export const Find = () => {
  const [isOpen, setOpen] = useState(false)
  useEffect(() => {
    const open = () => setOpen(true)
    const press = (event: KeyboardEvent) => {
      // Another dialog stays alone.
      if (!isShortcut(event) || document.querySelector("dialog[open]:not(.menu)") !== null) return
      event.preventDefault()
      open()
    }
    asks.addEventListener("find", open)
    document.addEventListener("keydown", press)
    return () => {
      asks.removeEventListener("find", open)
      document.removeEventListener("keydown", press)
    }
  }, [])
  return isOpen ? <FindDialog onClose={() => setOpen(false)} /> : null
}
