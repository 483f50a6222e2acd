import { type HTMLAttributes, type ComponentChildren, createContext } from "preact"
import { useContext, useLayoutEffect, useState } from "preact/hooks"
import { isInFrame } from "../client/embedded.ts"

/** The address of the console, or of the portal in a frame; addresses of pages are below it. */
export const base = isInFrame ? "/portal/embed" : "/console"

interface Location {
  /** The path below `base`: "/" or "/orgs/…". */
  readonly path: string
  readonly search: URLSearchParams
}

const read = (): Location => ({
  path: location.pathname.slice(base.length).replace(/\/+$/, "") || "/",
  search: new URLSearchParams(location.search),
})

const LocationContext = createContext<Location>({ path: "/", search: new URLSearchParams() })
const changes = new EventTarget()

/** Goes to a page. `replace` leaves no entry in the history: for filters. `isHere`: the page stays where it is. */
export const navigate = (to: string, options: { readonly replace?: boolean; readonly isHere?: boolean } = {}) => {
  const { replace = false, isHere = replace } = options
  history[replace ? "replaceState" : "pushState"](null, "", `${base}${to === "/" ? "" : to}`)
  changes.dispatchEvent(new Event("change"))
  if (!isHere) window.scrollTo(0, 0)
}

export const Router = ({ children }: { readonly children: ComponentChildren }) => {
  const [current, setCurrent] = useState(read)
  // Before the effects of the pages, which may go to another page at once.
  useLayoutEffect(() => {
    const update = () => setCurrent(read())
    changes.addEventListener("change", update)
    window.addEventListener("popstate", update)
    return () => {
      changes.removeEventListener("change", update)
      window.removeEventListener("popstate", update)
    }
  }, [])
  return <LocationContext.Provider value={current}>{children}</LocationContext.Provider>
}

export const useLocation = () => useContext(LocationContext)

/** The values of the query. */
export const useQuery = () => Object.fromEntries(useLocation().search)

/** A value of the query, and a function that changes it: what a page filters by is in its address. */
export const useSearch = (name: string) => {
  const { path, search } = useLocation()
  const set = (value: string | undefined, replace = true) => {
    const next = new URLSearchParams(location.search)
    if (value === undefined || value === "") next.delete(name)
    else next.set(name, value)
    navigate(next.size === 0 ? path : `${path}?${next}`, { replace, isHere: true })
  }
  return [search.get(name) ?? undefined, set] as const
}

/** One of a few values, in the address of the page. */
export const useChoice = <Value extends string>(
  name: string,
  options: ReadonlyArray<{ readonly value: Value }>,
  usual: Value,
) => {
  const [text, setText] = useSearch(name)
  const value = options.find((option) => option.value === text)?.value ?? usual
  return [value, (next: Value) => setText(next === usual ? undefined : next)] as const
}

/** The parameters of a path that has the form of a pattern such as "/orgs/:orgId"; else undefined. */
export const match = (pattern: string, path: string): Readonly<Record<string, string>> | undefined => {
  const wanted = pattern.split("/")
  const parts = path.split("/")
  if (wanted.length !== parts.length) return undefined
  const params: Record<string, string> = {}
  for (const [i, part] of wanted.entries()) {
    if (part.startsWith(":")) params[part.slice(1)] = decode(parts[i]!)
    else if (part !== parts[i]) return undefined
  }
  return params
}

const decode = (text: string) => {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

const ParamsContext = createContext<Readonly<Record<string, string>>>({})
export const ParamsProvider = ParamsContext.Provider

/** A parameter of the page's address. */
export const useParam = (name: string) => useContext(ParamsContext)[name]!

const isPlainClick = (event: MouseEvent) =>
  event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey

/** A link to a page of the console. */
export const Link = ({
  to,
  ...rest
}: { readonly to: string } & Omit<HTMLAttributes<HTMLAnchorElement>, "href" | "role">) => (
  <a
    {...rest}
    href={`${base}${to === "/" ? "" : to}`}
    onClick={(event) => {
      if (!isPlainClick(event)) return
      event.preventDefault()
      navigate(to)
    }}
  />
)

/** The address of a page of an org. */
export const orgPath = (orgId: string, page = "") => `/orgs/${orgId}${page}`
