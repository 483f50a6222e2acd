import { useState } from "preact/hooks"
import { useIsLive } from "../client/live.tsx"
import { isInFrame } from "../client/embedded.ts"
import { useData } from "../client/queries.ts"
import { type Me, personName, signOut, useMay, useSession } from "../client/session.tsx"
import { Badge } from "../components/Badge.tsx"
import { Button, Icon } from "../components/Button.tsx"
import { Time } from "../components/Time.tsx"
import { Segments } from "../components/Tabs.tsx"
import { toast } from "../components/Toasts.tsx"
import { type NavSection, type Route, routes } from "../pages/routes.ts"
import { Brand, look } from "./Brand.tsx"
import { FindButton, openFind } from "./Find.tsx"
import { useOrgId } from "./org.ts"
import { Link, useLocation } from "./router.tsx"

const principals: Record<Me["principal"], string> = {
  administrator: "Administrator",
  person: "Signed in",
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
    <Link class="nav-link" to={to} title={route.nav!.label} aria-current={isOpen(to, path) ? "page" : undefined}>
      <Icon name={route.nav!.icon} />
      <span class="label">{route.nav!.label}</span>
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
  const { person } = me
  const name = person === null ? principals[me.principal] : personName(person)
  const end = async () => {
    try {
      await signOut()
      leave()
    } catch {
      toast("Signing out failed: the service did not answer.")
    }
  }
  return (
    <details class="sidebar-foot small">
      <summary title={name}>
        <Icon name="people" />
        <strong class="label">{name}</strong>
        <Badge tone={isLive ? "good" : "calm"}>{isLive ? "Live" : "Connecting"}</Badge>
      </summary>
      <div class="reader">
        {person !== null && (
          <span class="anywhere">
            {person.email !== null && `${person.email}, `}
            {person.role}
            {me.orgId === null ? " of all orgs" : ""}
          </span>
        )}
        {me.expiresAt !== null && (
          <span class="quiet">
            Session ends <Time at={me.expiresAt} isRelative />
          </span>
        )}
        {!isInFrame && <ThemeChoice />}
        <div class="row between">
          <a href={me.principal === "portal" ? "/docs/portal" : "/docs"} target="_blank" rel="noreferrer">
            API reference
          </a>
          {look.helpUrl !== undefined && (
            <a href={look.helpUrl} target="_blank" rel="noreferrer">
              Help
            </a>
          )}
          {me.csrfToken !== null && (
            <Button look="plain" icon="door" isSmall onClick={end}>
              Sign out
            </Button>
          )}
        </div>
      </div>
    </details>
  )
}

/** Where the reader can go. */
export const Sidebar = ({ orgId }: { readonly orgId: string | undefined }) => (
  <aside class="sidebar" aria-label="Console">
    <Brand />
    <nav class="stack" aria-label="Pages">
      <Section section="operator" orgId={orgId} />
      <OrgSwitcher />
      <FindButton />
      {(["org", "webhooks", "jobs", "chat", "settings"] as const).map((section) => (
        <Section key={section} section={section} orgId={orgId} />
      ))}
    </nav>
    <Reader />
  </aside>
)

/** The name of the org of the page. */
export const useOrgName = () => {
  const may = useMay()
  const orgId = useOrgId()
  const { me } = useSession()
  const { data } = useData("orgs.get", { orgId: orgId ?? "" }, { enabled: orgId !== undefined && may("orgs.get") })
  return orgId === undefined ? "Choose an org" : (data?.name ?? me.orgName ?? "Org")
}

/** Names the org of the page, and opens another one. */
const OrgSwitcher = () => {
  const { me } = useSession()
  const name = useOrgName()
  if (me.orgId !== null) {
    return (
      <div class="switcher" title={name}>
        <span class="truncate">{name}</span>
      </div>
    )
  }
  return (
    <button type="button" class="switcher" title={name} aria-haspopup="dialog" onClick={() => openFind("org ")}>
      <span class="truncate">{name}</span>
      <Icon name="sort" />
    </button>
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
