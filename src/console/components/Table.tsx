import type { ComponentChildren } from "preact"
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks"
import { Button } from "./Button.tsx"
import { ErrorBox } from "./ErrorBox.tsx"
import { breaks, Card, type CardProps, Empty, styled } from "./Page.tsx"
import { Link } from "../navigation/router.tsx"

type LinkOfRow = readonly [to: string, text: string, more?: ComponentChildren]

export interface Column<Row> {
  readonly title: string
  readonly cell?: (row: Row) => ComponentChildren
  /** In place of `cell`: the page of the row, its name, and what stands below it. */
  readonly link?: (row: Row) => LinkOfRow
  /** end: numbers, at the right. fit: as narrow as its content. words: a line ends between words alone. */
  readonly align?: "end" | "fit" | "words"
  /** Left out in a middle width: the page of the row has it. */
  readonly isExtra?: boolean
}

export interface TableProps<Row> {
  /** What the rows are, for people who do not see the page. */
  readonly caption: string
  /** undefined: on their way. */
  readonly rows: ReadonlyArray<Row> | undefined
  readonly columns: ReadonlyArray<Column<Row>>
  readonly rowKey: (row: Row) => string
  /** Shown in the place of no rows. */
  readonly empty: ComponentChildren
  /** What a row is, when the reader has filtered them: said in the place of no rows. */
  readonly filtered?: string | false | undefined
  readonly error?: Error | null
  readonly refetch?: () => void
  readonly more?: (() => void) | undefined
  readonly isLoadingMore?: boolean
  /** How many newer rows wait until the reader asks for them. */
  readonly fresh?: number
  readonly showFresh?: () => void
  /** The row that is open beside the list. */
  readonly openKey?: string | undefined
  /** Opens a row beside the list. */
  readonly onOpen?: (key: string) => void
}

/**
 * A text that leads to the page of a row. One that is longer than two lines is cut, and whole on hover; in the place of
 * one that nobody sees, such as a space, is the id.
 */
const LinkCell = ({ of: [to, text, more] }: { readonly of: LinkOfRow }) => (
  <div>
    <Link class="main truncate-2" title={text} to={to}>
      {/[^\p{Z}\p{C}]/u.test(text) ? breaks(text) : to.split("/").at(-1)}
    </Link>
    {more != null && <div class="quiet small">{more}</div>}
  </div>
)

const waitingRows = 5

/** Rows that come and go together while the reader scrolls. */
const chunkRows = 50
/** How far from the window rows are kept. */
const nearPixels = 1_500

interface ChunkProps {
  /** Its height until it was shown. */
  readonly height: number
  readonly columns: number
  /** Whether it is shown before it is known how near it is. */
  readonly isFirst: boolean
  readonly children: () => ComponentChildren
}

/** Some rows of a long list. Far from the window, one empty row of their height is in their place. */
const Chunk = ({ children, columns, height: expected, isFirst }: ChunkProps) => {
  const body = useRef<HTMLTableSectionElement>(null)
  const [isShown, setShown] = useState(isFirst)
  const height = useRef<number>(undefined)
  const before = useRef<DOMRectReadOnly>(undefined)
  // What ends above the end of the window, and gets another height, moves nothing that the reader sees.
  useLayoutEffect(() => {
    if (before.current === undefined || before.current.bottom > innerHeight) return
    const by = body.current!.offsetHeight - before.current.height
    if (by !== 0) window.scrollBy({ top: by, behavior: "instant" })
  }, [isShown])
  useEffect(() => {
    const observer = new IntersectionObserver(
      ([entry]) => {
        before.current = entry!.boundingClientRect
        const isNear = entry!.isIntersecting || body.current!.contains(document.activeElement)
        if (!isNear) height.current = before.current.height
        setShown(isNear)
      },
      { rootMargin: `${nearPixels}px 0px` },
    )
    observer.observe(body.current!)
    return () => observer.disconnect()
  }, [])
  return (
    <tbody role="rowgroup" ref={body}>
      {isShown ? (
        children()
      ) : (
        <tr class="far" aria-hidden="true" {...styled({ height: `${height.current ?? expected}px` })}>
          <td colSpan={columns} />
        </tr>
      )}
    </tbody>
  )
}

/**
 * Of a long list, the height of a row, as the first ones have it. End goes to the end at once: on the way, rows that
 * get another height would move it away.
 */
const useRowPixels = (isLong: boolean) => {
  const table = useRef<HTMLTableElement>(null)
  const [pixels, setPixels] = useState(0)
  useLayoutEffect(() => {
    if (!isLong) return
    setPixels(table.current!.tBodies[0]!.offsetHeight / chunkRows)
    const toEnd = ({ key, target }: KeyboardEvent) => {
      if (key === "End" && (target as Element).closest("input, textarea, select, dialog") === null)
        window.scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" })
    }
    document.addEventListener("keydown", toEnd)
    return () => document.removeEventListener("keydown", toEnd)
  }, [isLong])
  return { pixels, table }
}

/** Whether a click is on nothing of its own, and selects no text. */
const isBare = (target: Element) =>
  target.closest("a, button, summary") === null && getSelection()?.isCollapsed !== false

/** A list. On narrow screens each row is a card; the roles keep it a table for screen readers. */
export const Table = <Row,>(props: TableProps<Row>) => {
  const {
    caption,
    columns,
    empty,
    error,
    filtered,
    fresh = 0,
    isLoadingMore = false,
    more,
    refetch,
    rowKey,
    rows,
  } = props
  const { onOpen, openKey } = props
  const isLong = rows !== undefined && rows.length > 2 * chunkRows
  const { pixels, table } = useRowPixels(isLong)
  if (error && rows === undefined) {
    return <ErrorBox error={error} {...(refetch === undefined ? {} : { onRetry: refetch })} />
  }
  if (rows?.length === 0) return filtered ? <NoMatch noun={filtered} more={more} /> : <>{empty}</>
  const classOf = ({ align, isExtra }: Column<Row>) => [align, isExtra === true && "extra"].filter(Boolean).join(" ")
  const cell = (column: Column<Row>, content: ComponentChildren) => (
    <td key={column.title} role="cell" class={classOf(column)} data-title={column.title}>
      {content}
    </td>
  )
  const lines = (from: number, to: number) =>
    rows!.slice(from, to).map((row, i) => {
      const key = rowKey(row)
      return (
        <tr
          key={key}
          role="row"
          aria-rowindex={isLong ? from + i + 2 : undefined}
          aria-current={key === openKey ? "true" : undefined}
          onClick={onOpen && (({ target }) => isBare(target as Element) && onOpen(key))}
        >
          {columns.map((column) =>
            cell(column, column.link === undefined ? column.cell?.(row) : <LinkCell of={column.link(row)} />),
          )}
        </tr>
      )
    })
  return (
    <>
      {fresh > 0 && (
        <div class="table-fresh">
          <Button isSmall look="primary" onClick={props.showFresh}>
            {fresh}
            {fresh >= 100 && "+"} new ↑
          </Button>
        </div>
      )}
      <table
        class="table"
        role="table"
        ref={table}
        aria-busy={rows === undefined}
        aria-rowcount={isLong ? rows.length + 1 : undefined}
      >
        <caption class="visually-hidden">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map((column) => (
              <th key={column.title} role="columnheader" scope="col" class={classOf(column)}>
                {column.title === "" ? <span class="visually-hidden">Actions</span> : column.title}
              </th>
            ))}
          </tr>
        </thead>
        {isLong ? (
          Array.from({ length: Math.ceil(rows.length / chunkRows) }, (_, i) => (
            <Chunk
              key={i}
              isFirst={i < 2}
              height={Math.min(chunkRows, rows.length - i * chunkRows) * pixels}
              columns={columns.length}
            >
              {() => lines(i * chunkRows, (i + 1) * chunkRows)}
            </Chunk>
          ))
        ) : (
          <tbody role="rowgroup">
            {rows === undefined
              ? Array.from({ length: waitingRows }, (_, i) => (
                  <tr key={i} role="row">
                    {columns.map((column) => cell(column, <span class="skeleton w-70" />))}
                  </tr>
                ))
              : lines(0, rows.length)}
          </tbody>
        )}
      </table>
      {more !== undefined && (
        <div class="table-foot">
          <ErrorBox error={error} />
          <Button onClick={more} disabled={isLoadingMore}>
            {isLoadingMore ? "Loading…" : "Show more"}
          </Button>
        </div>
      )}
    </>
  )
}

/** A list in a card. Its title is what the rows are, unless there is another caption. */
export type ListCardProps<Row> = Omit<TableProps<Row>, "caption"> &
  Pick<CardProps, "actions" | "id" | "title"> & { readonly caption?: string }

export const ListCard = <Row,>({ actions, id, title, caption = title ?? "", ...table }: ListCardProps<Row>) => (
  <Card {...{ actions, id, title }} isPadded={false}>
    <Table {...table} caption={caption} />
  </Card>
)

interface NoMatchProps {
  /** What the list has. */
  readonly noun: string
  /** Reads further, while the list goes on. */
  readonly more: (() => void) | undefined
}

/** Said in the place of no rows, when the reader has filtered them. */
const NoMatch = ({ more, noun }: NoMatchProps) => (
  <Empty icon="search" title={more === undefined ? `No ${noun} matches` : `No ${noun} matches so far`}>
    <p>Change the filters, or clear them.</p>
    {more !== undefined && <Button onClick={more}>Look further</Button>}
  </Empty>
)

/** Lines in the place of a text that is on its way, so that nothing moves when it arrives. */
export const Skeleton = ({ lines = 1 }: { readonly lines?: number }) => (
  <div class="stack" aria-busy="true">
    <span class="visually-hidden">Loading</span>
    {Array.from({ length: lines }, (_, i) => (
      <span key={i} class={`skeleton ${["w-70", "w-50", "w-30"][i % 3]}`} />
    ))}
  </div>
)

interface LoadedProps<Data> {
  readonly of: { readonly data: Data | undefined; readonly error: Error | null; readonly refetch: () => void }
  /** Lines in its place while it is on its way. */
  readonly lines?: number
  readonly children: (data: Data) => ComponentChildren
}

/** A response once it is there; until then lines, or why there is none. */
export const Loaded = <Data,>({ children, lines = 3, of: { data, error, refetch } }: LoadedProps<Data>) => {
  if (data !== undefined) return <>{children(data)}</>
  return error === null ? <Skeleton lines={lines} /> : <ErrorBox error={error} onRetry={refetch} />
}
