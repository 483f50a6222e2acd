import { useEffect, useRef, useState } from "preact/hooks"
import { isInFrame } from "../client/embedded.ts"
import { LiveProvider, useGoneSince } from "../client/live.tsx"
import { isOutdated, refresh } from "../client/queries.ts"
import { useMay, useSession } from "../client/session.tsx"
import { Button } from "../components/Button.tsx"
import { Notice } from "../components/ErrorBox.tsx"
import { Empty, Page } from "../components/Page.tsx"
import { Time, useNow } from "../components/Time.tsx"
import { type Route, routes } from "../pages/routes.ts"
import { find, LazyPage } from "./Beside.tsx"
import { platformName } from "./Brand.tsx"
import { Find, FindButton } from "./Find.tsx"
import { Sidebar, useOrgName } from "./Sidebar.tsx"
import { OrgContext } from "./org.ts"
import { Link, navigate, orgPath, ParamsProvider, useLocation } from "./router.tsx"

const NotFound = () => (
  <Page title="There is no such page">
    <div class="card">
      <Empty icon="search" title="Nothing is here, or you may not see it">
        <p>The address may be mistyped, or your key may not open this page.</p>
        <Link to="/">Go to the first page</Link>
      </Empty>
    </div>
  </Page>
)

/** The first page of a reader who may not see the overview. */
const useFirstPage = (found: { readonly route: Route } | undefined, orgId: string | null) => {
  const may = useMay()
  const isHome = found?.route.path === "/" && !may(...found.route.needs)
  const first = routes.find(({ nav, needs, path }) => nav !== undefined && path !== "/" && may(...needs))
  const to = isHome && orgId !== null ? first?.path.replace(":orgId", orgId) : undefined
  useEffect(() => {
    if (to !== undefined) navigate(to, { replace: true })
  }, [to])
  return to !== undefined
}

/** The bar and the menu of narrow screens. */
const TopBar = ({ orgId }: { readonly orgId: string | undefined }) => {
  const menu = useRef<HTMLDialogElement>(null)
  const [isOpen, setOpen] = useState(false)
  const { path } = useLocation()
  const name = useOrgName()
  useEffect(() => setOpen(false), [path])
  useEffect(() => {
    if (isOpen) menu.current?.showModal()
    else menu.current?.close()
  }, [isOpen])
  return (
    <header class="topbar">
      <Button icon="menu" look="plain" aria-label="Open the menu" onClick={() => setOpen(true)} />
      <Link class="topbar-org truncate" to={orgId === undefined ? "/" : orgPath(orgId)}>
        {orgId === undefined ? platformName() : name}
      </Link>
      <FindButton />
      <dialog
        ref={menu}
        class="menu"
        aria-label="Menu"
        onClose={() => setOpen(false)}
        onClick={(event) => event.target === menu.current && setOpen(false)}
      >
        {isOpen && <Sidebar orgId={orgId} />}
      </dialog>
    </header>
  )
}

/** How long the service may be away before a page says so. */
const goneMillis = 5_000

/** Says that what is shown is old: since when, when the service does not answer at all. */
const Outdated = () => {
  const since = useGoneSince()
  const now = useNow(1_000)
  if (since === undefined || now - since < goneMillis) {
    if (!isOutdated()) return null
    return (
      <Notice tone="bad">
        <strong>Not everything on this page could be read again.</strong>
        <span>
          Some of it shows what was so before.{" "}
          <Button isSmall onClick={() => void refresh()}>
            Try again
          </Button>
        </span>
      </Notice>
    )
  }
  return (
    <Notice tone="bad">
      <strong>
        The service has not answered since <Time at={new Date(since).toISOString()} />.
      </strong>
      <span>This page shows what was so before. It continues by itself when the service answers.</span>
    </Notice>
  )
}

/** The frame of every page: navigation beside the page of the address. */
export const Layout = () => {
  const { me } = useSession()
  const may = useMay()
  const { path } = useLocation()
  const found = find(path)
  const main = useRef<HTMLElement>(null)
  const [shown, setShown] = useState(path)
  const orgId = found?.params["orgId"] ?? me.orgId ?? undefined
  const isLeaving = useFirstPage(found, me.orgId)
  useEffect(() => {
    if (shown === path) return
    setShown(path)
    // The page around a frame keeps the focus, until the reader is in the frame.
    if (!isInFrame || document.hasFocus()) main.current?.focus({ preventScroll: true })
  }, [path])
  const isAllowed = found !== undefined && may(...found.route.needs)
  return (
    <OrgContext.Provider value={orgId}>
      <LiveProvider orgId={orgId} isAllowed={may("live.follow")}>
        <a class="skip" href="#main">
          Skip to the page
        </a>
        <div class="layout">
          <TopBar orgId={orgId} />
          <Sidebar orgId={orgId} />
          <main id="main" class="page" ref={main} tabIndex={-1}>
            <Outdated />
            {isLeaving ? null : isAllowed ? (
              <ParamsProvider value={found.params} key={path}>
                <LazyPage route={found.route} />
              </ParamsProvider>
            ) : (
              <NotFound />
            )}
          </main>
        </div>
        <Find />
      </LiveProvider>
    </OrgContext.Provider>
  )
}
