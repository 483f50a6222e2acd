import type { ComponentChildren, ComponentType } from "preact"
import { useEffect, useRef, useState } from "preact/hooks"
import { answers } from "../client/call.ts"
import { isInFrame } from "../client/embedded.ts"
import { Button, buttonClass } from "../components/Button.tsx"
import { ErrorBox } from "../components/ErrorBox.tsx"
import { InPanel } from "../components/Page.tsx"
import { Skeleton, type TableProps } from "../components/Table.tsx"
import { type Route, routes } from "../pages/routes.ts"
import { Link, match, ParamsProvider, useSearch } from "./router.tsx"

/** The page of an address, with its parameters. */
export const find = (path: string) => {
  for (const route of routes) {
    const params = match(route.path, path)
    if (params !== undefined) return { route, params }
  }
  return undefined
}

/** How long a page whose script failed waits until it asks whether the service answers. */
const reloadMillis = 5_000
/** The path of the page that was loaded again by itself. */
const reloadedKey = "reloaded"

const loaded = new Map<string, ComponentType>()

/** A page, loaded when it is first shown. */
export const LazyPage = ({ route }: { readonly route: Route }) => {
  const [, setCount] = useState(0)
  const [error, setError] = useState<Error>()
  const Loaded = loaded.get(route.path)
  useEffect(() => {
    if (Loaded !== undefined) return
    setError(undefined)
    route.page().then(
      (file) => {
        loaded.set(route.path, file.default)
        if (!isInFrame) sessionStorage.removeItem(reloadedKey)
        setCount((count) => count + 1)
      },
      (error: Error) => setError(error),
    )
  }, [route.path])
  // Begins again once when the service answers: a browser may remember that a script failed, and another version has
  // others.
  useEffect(() => {
    // A frame of another page has no storage to remember it.
    if (error === undefined || isInFrame) return
    const look = async () => {
      if (sessionStorage.getItem(reloadedKey) === route.path || !(await answers())) return
      sessionStorage.setItem(reloadedKey, route.path)
      location.reload()
    }
    const timer = setInterval(look, reloadMillis)
    return () => clearInterval(timer)
  }, [error])
  if (Loaded !== undefined) return <Loaded />
  return error === undefined ? <Skeleton lines={3} /> : <ErrorBox error={error} onRetry={() => location.reload()} />
}

interface BesideProps<Row> {
  readonly list: Pick<TableProps<Row>, "rows" | "more">
  readonly rowKey: (row: Row) => string
  /** The address of the page of a row. */
  readonly pathOf: (key: string) => string
  /** What a row is: "delivery". */
  readonly noun: string
  /** The list: a table that gets these. */
  readonly children: (opened: Pick<TableProps<Row>, "openKey" | "onOpen">) => ComponentChildren
}

/** How a row is opened, for who has a pointer and a keyboard. */
export const besideHint = (
  <span class="for-pointers">A click on a row opens it beside the list, and j and k the next.</span>
)

/** Where a letter is text, or belongs to a dialog. */
const typing = "input, textarea, select, dialog, [popover]"

/**
 * A list with the page of one of its rows beside it: a click on a row opens it, beside its links. While the list or the
 * page has the focus, j and k open the next and the previous row, and Escape closes it.
 */
export const Beside = <Row,>({ children, list, noun, pathOf, rowKey }: BesideProps<Row>) => {
  const [openKey, setOpenKey] = useSearch("beside")
  const panel = useRef<HTMLElement>(null)
  const keys = list.rows?.map(rowKey) ?? []
  const place = openKey === undefined ? -1 : keys.indexOf(openKey)
  const found = openKey === undefined ? undefined : find(pathOf(openKey))
  // A row that has left the list, as a resent one does those that failed, has left the next one in its place.
  const last = useRef(0)
  if (place >= 0 || openKey === undefined) last.current = Math.max(0, place)
  const keyBy = (by: 1 | -1) => keys[place >= 0 ? place + by : by === 1 ? last.current : last.current - 1]
  // Back closes the panel; another row in it is no step back.
  const open = (key: string) => setOpenKey(key, openKey !== undefined)
  const go = (by: 1 | -1) => {
    const key = keyBy(by)
    if (key !== undefined) open(key)
    else if (by === 1) list.more?.()
  }
  const close = () => {
    document.querySelector<HTMLElement>(".table tr[aria-current] a")?.focus()
    setOpenKey(undefined)
  }
  const press = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
    if ((event.target as Element).closest(typing) !== null) return
    if (event.key === "Escape" && openKey !== undefined) close()
    else if (event.key === "j") go(1)
    else if (event.key === "k") go(-1)
  }
  useEffect(() => {
    if (openKey === undefined) return
    document.querySelector(".table tr[aria-current]")?.scrollIntoView({ block: "nearest" })
    // Where the panel is above the list, it comes into view.
    panel.current?.focus({ preventScroll: matchMedia("(width > 70rem)").matches })
  }, [openKey])
  return (
    <div class={found === undefined ? "stack" : "beside"} tabIndex={-1} onKeyDown={press}>
      {children({ openKey, onOpen: open })}
      {found !== undefined && (
        <aside class="card panel" ref={panel} tabIndex={-1} aria-label={`The ${noun} beside the list`}>
          <div class="card-head">
            <span class="quiet small" role="status">
              {place < 0 ? `A ${noun} that the list does not show` : `${place + 1} of ${keys.length}`}
            </span>
            <div class="row">
              <Button isSmall disabled={keyBy(-1) === undefined} aria-keyshortcuts="k" onClick={() => go(-1)}>
                Previous <kbd>k</kbd>
              </Button>
              <Button isSmall disabled={keyBy(1) === undefined} aria-keyshortcuts="j" onClick={() => go(1)}>
                Next <kbd>j</kbd>
              </Button>
              <Link class={buttonClass({ isSmall: true })} to={pathOf(openKey!)}>
                Whole page
              </Link>
              <Button look="plain" icon="close" isSmall aria-label="Close" onClick={close} />
            </div>
          </div>
          <div class="card-body stack" key={openKey}>
            <InPanel.Provider value={true}>
              <ParamsProvider value={found.params}>
                <LazyPage route={found.route} />
              </ParamsProvider>
            </InPanel.Provider>
          </div>
        </aside>
      )}
    </div>
  )
}
