import { type ComponentChildren, createContext } from "preact"
import { useContext, useEffect, useState } from "preact/hooks"
import type { OperationId } from "../client/Operations.ts"
import { useMay } from "../client/session.tsx"
import { platformName } from "../navigation/Brand.tsx"
import { Link, useLocation } from "../navigation/router.tsx"
import { Button, Icon, type IconName } from "./Button.tsx"

interface Crumb {
  readonly to: string
  readonly label: string
}

interface PageProps {
  readonly title: string
  /** What the page is for, in a sentence. */
  readonly intro?: ComponentChildren
  /** The pages above this one. */
  readonly crumbs?: ReadonlyArray<Crumb>
  /** Badges beside the title. */
  readonly state?: ComponentChildren
  readonly actions?: ComponentChildren
  readonly children: ComponentChildren
}

/** Whether a page is beside a list, which has the title of the tab. */
export const InPanel = createContext(false)

/** A page: its heading, what can be done here, and its content. Sets the title of the tab. */
export const Page = ({ actions, children, crumbs = [], intro, state, title }: PageProps) => {
  const isInPanel = useContext(InPanel)
  useEffect(() => {
    if (!isInPanel) document.title = `${title} · ${platformName()}`
  }, [title])
  return (
    <>
      <div class="page-head">
        <div>
          {crumbs.length > 0 && !isInPanel && (
            <nav aria-label="Breadcrumb">
              <ol class="crumbs">
                {crumbs.map(({ label, to }) => (
                  <li key={to}>
                    <Link to={to}>{label}</Link>
                  </li>
                ))}
              </ol>
            </nav>
          )}
          <div class="row">
            {isInPanel ? <h2 title={title}>{breaks(title)}</h2> : <h1 title={title}>{breaks(title)}</h1>}
            {state}
          </div>
          {intro !== undefined && <p class="page-intro">{intro}</p>}
        </div>
        {actions !== undefined && <div class="row">{actions}</div>}
      </div>
      {children}
    </>
  )
}

export interface CardProps {
  /** What an address with a # leads to. */
  readonly id?: string | undefined
  readonly title?: string | undefined
  readonly actions?: ComponentChildren
  /** false: the content reaches the edges, as tables do. */
  readonly isPadded?: boolean
  readonly isDangerous?: boolean
  readonly children: ComponentChildren
}

export const Card = ({ actions, children, id, isDangerous = false, isPadded = true, title }: CardProps) => (
  <section id={id} class={`card ${isDangerous ? "danger" : ""}`} aria-label={title}>
    {title !== undefined && (
      <div class="card-head">
        <h2>{title}</h2>
        {actions !== undefined && <div class="row">{actions}</div>}
      </div>
    )}
    <div class={isPadded ? "card-body" : "rows"}>{children}</div>
  </section>
)

/** What a list says when it is empty: what it will show, and what to do next. */
export const Empty = ({
  children,
  icon = "inbox",
  title,
}: {
  readonly title: string
  readonly icon?: IconName
  readonly children?: ComponentChildren
}) => (
  <div class="empty">
    <Icon name={icon} />
    <h2>{title}</h2>
    {children}
  </div>
)

/** A URL or a type of events, whose lines end after / and . */
export const breaks = (text: string) =>
  text.split(/(?<=[/.])(?=.)/).flatMap((part, i) => (i === 0 ? [part] : [<wbr key={i} />, part]))

/** A number with its name, in a card. */
export const Stat = ({
  children,
  label,
  note,
}: {
  readonly label: string
  readonly children: ComponentChildren
  readonly note?: ComponentChildren
}) => (
  <dl class="card stat">
    <dt>{label}</dt>
    <dd>{children}</dd>
    {note !== undefined && <dd class="note">{note}</dd>}
  </dl>
)

/** Names with values. Values that are undefined are left out. */
export const Facts = ({ of }: { readonly of: Readonly<Record<string, ComponentChildren>> }) => (
  <dl class="facts">
    {Object.entries(of).map(([name, value]) =>
      value === undefined ? null : (
        <>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </>
      ),
    )}
  </dl>
)

/** What creates one of a list, for readers who may: its button, and whether it is open. `?new` opens it. */
export const useCreate = (label: string, needs: OperationId, icon: IconName = "plus") => {
  const may = useMay()
  const [isCreating, setCreating] = useState(useLocation().search.has("new"))
  const create = may(needs) && (
    <Button look="primary" icon={icon} onClick={() => setCreating(true)}>
      {label}
    </Button>
  )
  return { create, isCreating, close: () => setCreating(false) }
}

/** What only the page can know of the look of a box. A length has its unit: without one, a browser leaves it out. */
export const styled = (style: {
  readonly height?: `${number}px`
  readonly left?: `${number}%`
  readonly right?: `${number}%`
  readonly flexGrow?: number
}) => ({ style })
