import { useEffect, useRef, useState } from "preact/hooks"
import type { OperationId } from "../client/Operations.ts"
import { call, GatehouseError } from "../client/call.ts"
import { useIsLive } from "../client/live.tsx"
import { contains, useMatches } from "../client/matches.ts"
import { useData, usePages } from "../client/queries.ts"
import { type Me, signOut, useMay, useSession } from "../client/session.tsx"
import { Badge } from "../components/Badge.tsx"
import { Button, Icon } from "../components/Button.tsx"
import { ago, Time } from "../components/Time.tsx"
import { Dialog } from "../components/Dialog.tsx"
import { Field, Form, Input } from "../components/Form.tsx"
import { NoMatch, Table } from "../components/Table.tsx"
import { Segments } from "../components/Tabs.tsx"
import { toast } from "../components/Toasts.tsx"
import { type NavSection, type Route, routes } from "../pages/routes.ts"
import { Brand } from "./Brand.tsx"
import { useOrgId } from "./org.ts"
import { Link, navigate, orgPath, useLocation } from "./router.tsx"

const principals: Record<Me["principal"], string> = {
  administrator: "Administrator",
  orgKey: "Org key",
  projectKey: "Project key",
  portal: "Webhook portal",
  anonymous: "Anyone on this machine",
}

const sections: Record<NavSection, string | undefined> = {
  operator: undefined,
  org: undefined,
  webhooks: "Webhooks",
  jobs: "Jobs",
  chat: "Chat",
  settings: "Manage",
}

/** Whether a page is open, or one below it. The home of an org has all pages of the org below it. */
const isOpen = (to: string, path: string) =>
  path === to || (path.startsWith(`${to}/`) && !/^\/orgs(\/[^/]+)?$/.test(to) && to !== "/")

const NavLink = ({ orgId, route }: { readonly route: Route; readonly orgId: string | undefined }) => {
  const { path } = useLocation()
  const to = route.path.replace(":orgId", orgId ?? "")
  return (
    <Link class="nav-link" to={to} aria-current={isOpen(to, path) ? "page" : undefined}>
      <Icon name={route.nav!.icon} />
      {route.nav!.label}
    </Link>
  )
}

interface SectionProps {
  readonly section: NavSection
  readonly orgId: string | undefined
}

/** The pages of a section that the reader may open. */
const Section = ({ orgId, section }: SectionProps) => {
  const may = useMay()
  const pages = routes.filter(
    ({ nav, needs, path }) =>
      nav?.section === section && may(...needs) && (orgId !== undefined || !path.includes(":orgId")),
  )
  if (pages.length === 0) return null
  const title = sections[section]
  return (
    <div class="nav-section">
      {title !== undefined && <div class="nav-title">{title}</div>}
      {pages.map((route) => (
        <NavLink key={route.path} route={route} orgId={orgId} />
      ))}
    </div>
  )
}

const ThemeChoice = () => {
  const [theme, setTheme] = useState(currentTheme)
  const choose = (theme: Theme) => {
    chooseTheme(theme)
    setTheme(theme)
  }
  return <Segments label="Theme" value={theme} options={themes} onChange={choose} />
}

const Reader = () => {
  const { leave, me } = useSession()
  const isLive = useIsLive()
  const end = async () => {
    try {
      await signOut()
      leave()
    } catch {
      toast("Signing out failed: the service did not answer.")
    }
  }
  return (
    <div class="sidebar-foot small">
      <div class="row between">
        <strong>{principals[me.principal]}</strong>
        <Badge tone={isLive ? "good" : "calm"}>{isLive ? "Live" : "Connecting"}</Badge>
      </div>
      {me.expiresAt !== null && (
        <span class="quiet">
          Session ends <Time at={me.expiresAt} isRelative />
        </span>
      )}
      <ThemeChoice />
      <div class="row between">
        <a href="/docs" target="_blank" rel="noreferrer">
          API reference
        </a>
        {me.csrfToken !== null && (
          <Button look="plain" icon="door" isSmall onClick={end}>
            Sign out
          </Button>
        )}
      </div>
    </div>
  )
}

/** Where the reader can go. */
export const Sidebar = ({ orgId }: { readonly orgId: string | undefined }) => (
  <aside class="sidebar" aria-label="Console">
    <Brand />
    <nav class="stack" aria-label="Pages">
      <Section section="operator" orgId={orgId} />
      <OrgSwitcher />
      <FindById />
      {(["org", "webhooks", "jobs", "chat", "settings"] as const).map((section) => (
        <Section key={section} section={section} orgId={orgId} />
      ))}
    </nav>
    <Reader />
  </aside>
)

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
    // No operation reads one key; its usage is a 404 when there is none.
    needs: ["keys.list", "keys.usage"],
    noun: "key",
    page: "keys",
    get: (orgId, id) => call("keys.usage", { orgId, id, every: "hour", from: ago(3_600_000) }),
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

const idLength = 26

/** Whether a text may become an id while it is typed; an empty one may. */
const beginsAnId = (text: string) => /^(?:[0-7][0-9A-HJKMNP-TV-Z]*)?$/i.test(text.trim())

/** The ids in a text, such as a header or a line of a log, without that of the org. */
const idsIn = (text: string, orgId: string) => {
  const ids = text.toUpperCase().match(/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b/g) ?? []
  return [...new Set(ids)].filter((id) => id !== orgId).slice(0, maxIds)
}

/** The page of the first id that something has. */
const find = async (asked: ReadonlyArray<Place>, orgId: string, ids: ReadonlyArray<string>) => {
  for (const id of ids) {
    const page = await findOne(asked, orgId, id)
    if (page !== undefined) return page
  }
  return undefined
}

const listed = (asked: ReadonlyArray<Place>) => {
  const nouns = asked.map(({ noun }) => noun)
  return `${nouns.slice(0, -1).join(", ")} or ${nouns.at(-1)}`
}

const Find = ({ onClose, orgId }: { readonly orgId: string; readonly onClose: () => void }) => {
  const may = useMay()
  const [text, setText] = useState("")
  const [missing, setMissing] = useState<string>()
  const asked = places.filter(({ needs }) => may(...needs))
  const ids = idsIn(text, orgId)
  const isMissed = ids.length > 0 && missing === ids.join()
  const error = isMissed
    ? `No ${listed(asked)} of this org has the id ${ids.join(" or ")}. It may be of another org, or older than what is kept.`
    : ids.length === 0 && (text.trim().length >= idLength || !beginsAnId(text))
      ? `This text has no id to look for. An id has ${idLength} letters and digits.`
      : undefined
  const isBegun = ids.length === 0 && error === undefined && text.trim() !== ""
  const open = async () => {
    const page = await find(asked, orgId, ids)
    if (page === undefined) return setMissing(ids.join())
    onClose()
    navigate(page)
  }
  return (
    <Dialog title="Find by id" onClose={onClose}>
      <Form submit="Find" isReady={ids.length > 0 && !isMissed} onSubmit={open} onCancel={onClose}>
        <Field
          label="Id"
          hint={
            isBegun
              ? `An id has ${idLength} letters and digits; this one has ${text.trim().length} so far.`
              : `The id of a ${listed(asked)}. Or a text that has one: the webhook-id header, a line of a log.`
          }
          error={error}
        >
          <Input value={text} onInput={setText} autocomplete="off" spellcheck={false} placeholder="webhook-id: 01K…" />
        </Field>
      </Form>
    </Dialog>
  )
}

const isShortcut = ({ altKey, ctrlKey, key, metaKey, shiftKey }: KeyboardEvent) =>
  key.toLowerCase() === "k" && ctrlKey !== metaKey && !altKey && !shiftKey

/** Opens the page of whatever has an id in the org of the page. */
const FindById = () => {
  const orgId = useOrgId()
  const may = useMay()
  const button = useRef<HTMLButtonElement>(null)
  const [isOpen, setOpen] = useState(false)
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      // Narrow screens hide the navigation, and with it the dialog; another dialog stays alone.
      if (!isShortcut(event) || button.current?.checkVisibility() !== true) return
      if (document.querySelector("dialog[open]:not(.menu)") !== null) return
      event.preventDefault()
      setOpen(true)
    }
    document.addEventListener("keydown", press)
    return () => document.removeEventListener("keydown", press)
  }, [])
  if (orgId === undefined || !may("deliveries.get", "events.get")) return null
  return (
    <>
      <button
        ref={button}
        type="button"
        class="nav-link"
        aria-haspopup="dialog"
        aria-keyshortcuts="Control+K Meta+K"
        onClick={() => setOpen(true)}
      >
        <Icon name="search" />
        Find by id
        <kbd aria-hidden="true">{navigator.platform.startsWith("Mac") ? "⌘K" : "Ctrl K"}</kbd>
      </button>
      {isOpen && <Find orgId={orgId} onClose={() => setOpen(false)} />}
    </>
  )
}

const isId = (text: string) => /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(text)

/** A list of orgs to choose from, by name or by id. */
const ChooseOrg = ({ onClose }: { readonly onClose: () => void }) => {
  const [text, setText] = useState("")
  const id = text.trim().toUpperCase()
  const all = usePages("orgs.list", { limit: 100 }, ({ orgs }) => orgs)
  const matches = ({ name, orgId }: { readonly name: string; readonly orgId: string }) => contains(text, name, orgId)
  const named = useMatches(all, text === "" || isId(id) ? undefined : matches)
  // An id opens its org, also one that was not read.
  const pages = isId(id) ? { ...all, rows: all.rows?.filter(matches) } : named
  return (
    <Dialog title="Choose an org" onClose={onClose}>
      <Field label="Name or id">
        <Input value={text} onInput={setText} autocomplete="off" placeholder="Acme" />
      </Field>
      {isId(id) && pages.rows?.length === 0 ? (
        <Link to={orgPath(id)} onClickCapture={onClose}>
          Open the org {id}
        </Link>
      ) : (
        <Table
          caption="Orgs"
          {...pages}
          rowKey={({ orgId }) => orgId}
          empty={<NoMatch noun="org" more={pages.more} />}
          columns={[
            {
              title: "Org",
              cell: ({ name, orgId }) => (
                <Link class="main" to={orgPath(orgId)} onClickCapture={onClose}>
                  {name}
                </Link>
              ),
            },
          ]}
        />
      )}
    </Dialog>
  )
}

/** Names the org of the page, and opens another one. */
const OrgSwitcher = () => {
  const { me } = useSession()
  const may = useMay()
  const orgId = useOrgId()
  const [isChoosing, setChoosing] = useState(false)
  const { data } = useData("orgs.get", { orgId: orgId ?? "" }, { enabled: orgId !== undefined && may("orgs.get") })
  const name = orgId === undefined ? "Choose an org" : (data?.name ?? "Org")
  if (me.orgId !== null) return <div class="switcher truncate">{name}</div>
  return (
    <>
      <button type="button" class="switcher" aria-haspopup="dialog" onClick={() => setChoosing(true)}>
        <span class="truncate">{name}</span>
        <Icon name="sort" />
      </button>
      {isChoosing && <ChooseOrg onClose={() => setChoosing(false)} />}
    </>
  )
}

const key = "theme"

/** The looks that a reader can choose; system: as their device is set. */
const themes = [
  { value: "system", label: "System" },
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
] as const
type Theme = (typeof themes)[number]["value"]

const read = () => {
  try {
    return localStorage.getItem(key)
  } catch {
    // A browser that stores nothing: the choice holds until the console is left.
    return document.documentElement.dataset["theme"]
  }
}

const currentTheme = (): Theme => themes.find(({ value }) => value === read())?.value ?? "system"

const show = (theme: Theme) => void (document.documentElement.dataset["theme"] = theme)

/** Shows a theme, and keeps it in this browser. */
const chooseTheme = (theme: Theme) => {
  show(theme)
  try {
    if (theme === "system") localStorage.removeItem(key)
    else localStorage.setItem(key, theme)
  } catch {
    // As above.
  }
}

/** Shows what was chosen before, also when another tab chooses. */
export const startTheme = () => {
  show(currentTheme())
  addEventListener("storage", () => show(currentTheme()))
}
