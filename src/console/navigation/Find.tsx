import { useEffect, useState } from "preact/hooks"
import { call, GatehouseError } from "../client/call.ts"
import { contains, wholeKey, withoutKey } from "../client/matches.ts"
import type { Args, OperationId, ResponseBody } from "../client/Operations.ts"
import { queries, useData, usePages } from "../client/queries.ts"
import { useMay } from "../client/session.tsx"
import { Icon, type IconName } from "../components/Button.tsx"
import { Dialog } from "../components/Dialog.tsx"
import { sentenceOf } from "../components/ErrorBox.tsx"
import { Field, Form, Input } from "../components/Form.tsx"
import { routes } from "../pages/routes.ts"
import { cronText } from "../pages/schedules/cronText.ts"
import { useOrgId } from "./org.ts"
import { navigate, orgPath } from "./router.tsx"

/** Reads something by its id. Fails with a 404 when nothing of this kind has the id. */
type Get = (orgId: string, id: string) => Promise<unknown>

/** What has a page and an id. A look-up is skipped for readers who may not call its operations. */
const place = (noun: string, page: string, get: Get, needs: ReadonlyArray<OperationId>) => ({
  noun,
  page,
  get,
  needs,
})
const places = [
  place("delivery", "deliveries", (orgId, delivery_id) => call("deliveries.get", { delivery_id }, { orgId }), [
    "deliveries.get",
  ]),
  place("event", "events", (orgId, event_id) => call("events.get", { event_id }, { orgId }), ["events.get"]),
  place("job", "jobs", (orgId, job_id) => call("jobs.get", { job_id }, { orgId }), ["jobs.get"]),
  place("endpoint", "endpoints", (orgId, id) => call("webhooks.get", { id }, { orgId }), [
    "webhooks.get",
    "deliveries.list",
  ]),
  place("schedule", "schedules", (orgId, schedule_id) => call("schedules.get", { schedule_id }, { orgId }), [
    "schedules.get",
  ]),
  place("key", "keys", (orgId, id) => call("keys.get", { orgId, id }), ["keys.get"]),
]
type Place = ReturnType<typeof place>

const isRefused = (error: unknown) => error instanceof GatehouseError && error.status < 500
const isMissing = (error: unknown) => isRefused(error) && (error as GatehouseError).status === 404

/** What an operation answers; undefined when it refuses. */
const answered = <A,>(response: Promise<A>) =>
  response.catch((error: unknown) => {
    if (!isRefused(error)) throw error
    return undefined
  })

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

/** The ids in a text, such as a header or a line of a log. */
const idsIn = (text: string) =>
  [...new Set(text.toUpperCase().match(/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b/g) ?? [])].slice(0, maxIds)

/** The id of a request in a text: what is called so, or a UUID. */
const requestIn = (text: string) =>
  /request[-_ ]?id\W{1,3}([\w.-]{8,128})/i.exec(text)?.[1] ??
  /\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/i.exec(text)?.[0]

/**
 * The page of the first id that something has, in any org that the reader may see. What a job or the like has comes
 * first; then a project or an org, if it is not merely where the reader is.
 */
const findIds = async (asked: ReadonlyArray<Place>, may: May, here: string | undefined, ids: ReadonlyArray<string>) => {
  const owners = await Promise.all(
    ids.map(async (owns) => (may("orgs.list") ? (await call("orgs.list", { owns })).orgs[0]?.orgId : here)),
  )
  for (const [i, orgId] of owners.entries()) {
    const page = orgId && (await findOne(asked, orgId, ids[i]!))
    if (page) return page
  }
  for (const [i, id] of ids.entries()) {
    const project = owners[i] && (await answered(call("projects.get", { projectId: id })))
    if (project) return orgPath(project.orgId, `/projects/${id}`)
    if (id === here && ids.length > 1) continue
    const org = await answered(call("orgs.get", { orgId: owners[i] ?? id }))
    if (org) return orgPath(org.orgId)
  }
  return undefined
}

/** The page of a key. The service validates it at no cost; one that it refuses is looked for by its prefix. */
const findKey = async (here: string | undefined, key: string) => {
  const valid = await answered(call("keys.validate", { key, cost: 0 }))
  if (valid !== undefined) return orgPath(valid.orgId, `/keys/${valid.keyId}`)
  return here && orgPath(here, `/keys?text=${withoutKey(key)}`)
}

/** The change that a request has made; without one, the log of the page's org. */
const findRequest = async (may: May, here: string | undefined, request: string) => {
  const found = may("orgs.find") ? await findNamed(request, 1) : []
  const orgId = found.find(({ kind }) => kind === "change")?.orgId ?? here
  return orgId && orgPath(orgId, `/audit?text=${request}`)
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

const maxTargets = 12

/** Pages of names that one look-up reads, of 2,000 of each kind. */
const maxPages = 50

/** What has a text in its name, in every org that the reader may see, until there are enough. */
const findNamed = async (text: string, enough: number, isOver = () => false) => {
  const found: Array<Named> = []
  let cursor: string | null | undefined
  for (let n = 0; n < maxPages && found.length < enough && cursor !== null && !isOver(); n++) {
    const page = await call("orgs.find", { text, limit: enough, ...(cursor === undefined ? {} : { cursor }) })
    found.push(...page.found)
    cursor = page.nextCursor
  }
  return found
}
type Named = ResponseBody<"orgs.find">["found"][number]

type May = ReturnType<typeof useMay>

/** What has a name in the org of the page, as far as the reader may see it. */
const namedIn = async (may: May, orgId: string): Promise<ReadonlyArray<Target>> => {
  const read = <Id extends OperationId, Row>(
    id: Id,
    args: Args<Id>,
    rows: (response: ResponseBody<Id>) => ReadonlyArray<Row>,
  ) => (may(id) ? answered(call(id, args, { orgId })).then((all) => (all === undefined ? [] : rows(all))) : [])
  const [endpoints, keys, projects, schedules, workflows, jobs] = await Promise.all([
    read("webhooks.list", {}, (all) => all.webhook_endpoints),
    read("keys.list", { orgId, limit: 100, order: "newest" }, (all) => all.keys),
    read("projects.list", { orgId, limit: 100 }, (all) => all.projects),
    read("schedules.list", {}, (all) => all.schedules),
    read("workflows.list", {}, (all) => all.workflows),
    // Most workflows have neither limits nor a schedule: the newest jobs name them.
    read("jobs.list", { limit: 50 }, (all) => all.jobs),
  ])
  const target = (kind: string, icon: IconName, page: string, ...names: ReadonlyArray<string | null | undefined>) => ({
    to: orgPath(orgId, page),
    kind,
    icon,
    label: names.filter(Boolean).join(" · "),
  })
  const named = new Set([...workflows, ...schedules, ...jobs].map(({ workflow }) => workflow))
  return [
    ...endpoints.map(({ description, url, webhook_endpoint_id: id }) =>
      target("endpoint", "hook", `/endpoints/${id}`, url, description),
    ),
    ...keys.map(({ id, name, prefix }) => target("key", "key", `/keys/${id}`, name, prefix)),
    ...projects.map(({ name, projectId }) => target("project", "cube", `/projects/${projectId}`, name)),
    ...[...named].map((name) => target("workflow", "gear", `/jobs?workflow=${encodeURIComponent(name)}`, name)),
    ...schedules.map(({ cron, schedule_id, workflow }) =>
      target("schedule", "clock", `/schedules/${schedule_id}`, workflow, cronText(cron) ?? cron),
    ),
  ]
}

/** It is read once in half a minute, however often somebody opens the dialog. */
const readNamed = (...args: Parameters<typeof namedIn>) =>
  queries.fetchQuery({ queryKey: ["named", ...args.slice(1)], queryFn: () => namedIn(...args), staleTime: 30_000 })

/** How long a text stays before names are looked up by it, in milliseconds. */
const typingMillis = 300

const placeOf = {
  project: { page: "projects", icon: "cube" },
  key: { page: "keys", icon: "key" },
  endpoint: { page: "endpoints", icon: "hook" },
  schedule: { page: "schedules", icon: "clock" },
} as const

const targetsOf = (found: ReadonlyArray<Named>): ReadonlyArray<Target> =>
  found.flatMap(({ id, kind, name, orgId, orgName }) => {
    if (kind === "change") return []
    const { icon, page } = placeOf[kind]
    return [{ to: orgPath(orgId, `/${page}/${id}`), label: name, kind: `${kind} of ${orgName}`, icon }]
  })

/** What has a text in its name, in every org; undefined: not known yet. */
const useNamed = (text: string | undefined, onError: (error: Error) => void) => {
  const [found, setFound] = useState<{ readonly text: string; readonly targets: ReadonlyArray<Target> }>()
  useEffect(() => {
    if (text === undefined) return
    let isOver = false
    const look = async () => {
      const named = await findNamed(text, maxTargets, () => isOver)
      if (!isOver) setFound({ text, targets: targetsOf(named) })
    }
    const timer = setTimeout(() => void look().catch(onError), typingMillis)
    return () => {
      isOver = true
      clearTimeout(timer)
    }
  }, [text])
  if (text === undefined) return []
  return found?.text === text ? found.targets : undefined
}

const matching = (targets: ReadonlyArray<Target>, text: string) =>
  targets.filter(({ kind, label }) => contains(text, label, `${kind} ${label}`)).slice(0, maxTargets)

/**
 * Pages, actions, orgs, and what has a name: in the org of the page, and in other orgs when nothing here has it. None
 * while `isLookedUp`: the text has an id.
 */
const useTargets = (text: string, isLookedUp: boolean) => {
  const orgId = useOrgId()
  const may = useMay()
  const hasOrg = orgId !== undefined
  const all = usePages("orgs.list", { limit: 100, order: "newest" }, ({ orgs }) => orgs, {
    enabled: may("orgs.list"),
    isLive: false,
  })
  // Of more orgs than a page of them, the service says which have the text in their names.
  const name = text.trim().replace(/^org /i, "")
  const asksNames = all.more !== undefined && !isLookedUp && name !== ""
  const named = useData("orgs.list", { limit: maxTargets, text: name }, { enabled: asksNames, isLive: false })
  const orgs = new Map([...(all.rows ?? []), ...(named.data?.orgs ?? [])].map((org) => [org.orgId, org.name]))
  const [error, setError] = useState<Error | null>(null)
  const [here, setHere] = useState<ReadonlyArray<Target> | undefined>(hasOrg ? undefined : [])
  const local: ReadonlyArray<Target> = [
    ...routes.flatMap(({ nav, needs, path }) =>
      nav === undefined || !may(...needs) || (path.includes(":orgId") && !hasOrg)
        ? []
        : [{ to: path.replace(":orgId", orgId ?? ""), label: nav.label, kind: "page", icon: nav.icon }],
    ),
    ...actions
      .filter(({ needs }) => hasOrg && may(needs))
      .map(({ label, page }) => ({
        to: orgPath(orgId!, `/${page}?new=1`),
        label,
        kind: "action",
        icon: "plus" as const,
      })),
    ...[...orgs].map(([id, name]) => ({ to: orgPath(id), label: name, kind: "org", icon: "people" as const })),
    ...(here ?? []),
  ]
  const near = isLookedUp ? [] : matching(local, text)
  const isName = !isLookedUp && text.trim().length > 1 && here !== undefined
  const asksService = isName && may("orgs.find") && (!hasOrg || near.length === 0)
  const elsewhere = useNamed(asksService ? text.trim() : undefined, setError)
  const others = (elsewhere ?? []).filter(({ to }) => near.every((one) => one.to !== to))
  useEffect(() => {
    if (hasOrg) void readNamed(may, orgId).then(setHere, setError)
  }, [])
  const isAsked = (may("orgs.list") && all.rows === undefined) || (asksNames && named.data === undefined)
  const isSearching = !isLookedUp && (here === undefined || elsewhere === undefined || isAsked)
  return {
    found: [...near, ...others].slice(0, maxTargets),
    isSearching,
    failure: error ?? all.error ?? named.error,
  }
}

const FindDialog = ({ onClose, wanted }: { readonly wanted: string; readonly onClose: () => void }) => {
  const orgId = useOrgId()
  const may = useMay()
  const [text, setText] = useState(wanted)
  const [chosen, setChosen] = useState(0)
  const [missing, setMissing] = useState<string>()
  const asked = places.filter(({ needs }) => may(...needs))
  const key = may("keys.get") ? wholeKey.exec(text)?.[0] : undefined
  const ids = key === undefined ? idsIn(text) : []
  const request = may("audit.list") && key === undefined ? requestIn(text) : undefined
  const isLookedUp = key !== undefined || ids.length > 0 || request !== undefined
  const { failure, found, isSearching } = useTargets(text, isLookedUp)
  const isMissed = isLookedUp && missing === text
  const error = !isMissed
    ? isLookedUp || found.length > 0 || (isSearching && failure === null)
      ? undefined
      : failure !== null
        ? `Not everything could be asked. ${sentenceOf(failure)}`
        : "Nothing has this name, and the text has no id."
    : key !== undefined
      ? "The service refuses this key. Open its org, and look for its prefix among the keys."
      : ids.length > 0
        ? `Nothing that you may see has the id ${ids.join(" or ")}. It may be deleted, or older than what is kept.`
        : `None of the newest changes has the request ${request}. The log of the service has it.`
  const go = (to: string) => {
    onClose()
    navigate(to)
  }
  const open = async () => {
    if (!isLookedUp) return go((found[chosen] ?? found[0])!.to)
    const page =
      key !== undefined
        ? await findKey(orgId, key)
        : ((await findIds(asked, may, orgId, ids)) ??
          (request === undefined ? undefined : await findRequest(may, orgId, request)))
    if (page === undefined) return setMissing(text)
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
      <Form submit="Open" isReady={found.length > 0 || (isLookedUp && !isMissed)} onSubmit={open}>
        <Field
          label="Name, id or line of a log"
          hint="A page; an org, project, endpoint, workflow or key by its name; an id, a request id or a whole key, or a text with one."
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
                <span class="truncate-2 anywhere">{label}</span>
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
