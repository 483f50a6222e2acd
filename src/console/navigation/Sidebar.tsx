import { useState } from "preact/hooks"
import { Badge } from "../components/Badge.tsx"
import { Button } from "../components/Button.tsx"
import { Icon } from "../components/Icon.tsx"
import { Segments } from "../components/Tabs.tsx"
import { Time } from "../components/Time.tsx"
import { toast } from "../components/Toasts.tsx"
import { useIsLive } from "../client/live.tsx"
import { type Me, signOut, useMay, useSession } from "../client/session.tsx"
import { type NavSection, type Route, routes } from "../pages/routes.ts"
import { Brand } from "./Brand.tsx"
import { FindById } from "./FindById.tsx"
import { OrgSwitcher } from "./OrgSwitcher.tsx"
import { Link, useLocation } from "./router.tsx"
import { chooseTheme, currentTheme, type Theme, themes } from "./theme.ts"

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
