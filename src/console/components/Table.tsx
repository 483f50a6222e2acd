import type { ComponentChildren } from "preact"
import { Button } from "./Button.tsx"
import { ErrorBox } from "./ErrorBox.tsx"
import { Empty } from "./Page.tsx"

export interface Column<Row> {
  readonly title: string
  readonly cell: (row: Row) => ComponentChildren
  /** end: numbers, at the right. fit: as narrow as its content. words: a line ends between words alone. */
  readonly align?: "end" | "fit" | "words"
}

interface TableProps<Row> {
  /** What the rows are, for people who do not see the page. */
  readonly caption: string
  /** undefined: on their way. */
  readonly rows: ReadonlyArray<Row> | undefined
  readonly columns: ReadonlyArray<Column<Row>>
  readonly rowKey: (row: Row) => string
  /** Shown in the place of no rows. */
  readonly empty: ComponentChildren
  readonly error?: Error | null
  readonly refetch?: () => void
  readonly more?: (() => void) | undefined
  readonly isLoadingMore?: boolean
}

const waitingRows = 5

/** A list. On narrow screens each row is a card; the roles keep it a table for screen readers. */
export const Table = <Row,>(props: TableProps<Row>) => {
  const { caption, columns, empty, error, isLoadingMore = false, more, refetch, rowKey, rows } = props
  if (error && rows === undefined) {
    return <ErrorBox error={error} {...(refetch === undefined ? {} : { onRetry: refetch })} />
  }
  if (rows?.length === 0) return <>{empty}</>
  const cell = ({ align, title }: Column<Row>, content: ComponentChildren) => (
    <td key={title} role="cell" class={align} data-title={title}>
      {content}
    </td>
  )
  return (
    <>
      <table class="table" role="table" aria-busy={rows === undefined}>
        <caption class="visually-hidden">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">
            {columns.map(({ align, title }) => (
              <th key={title} role="columnheader" scope="col" class={align}>
                {title === "" ? <span class="visually-hidden">Actions</span> : title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody role="rowgroup">
          {rows === undefined
            ? Array.from({ length: waitingRows }, (_, i) => (
                <tr key={i} role="row">
                  {columns.map((column) => cell(column, <span class="skeleton w-70" />))}
                </tr>
              ))
            : rows.map((row) => (
                <tr key={rowKey(row)} role="row">
                  {columns.map((column) => cell(column, column.cell(row)))}
                </tr>
              ))}
        </tbody>
      </table>
      {more !== undefined && (
        <div class="table-foot">
          <Button onClick={more} disabled={isLoadingMore}>
            {isLoadingMore ? "Loading…" : "Show more"}
          </Button>
        </div>
      )}
    </>
  )
}

interface NoMatchProps {
  /** What the list has. */
  readonly noun: string
  /** Reads further, while the list goes on. */
  readonly more: (() => void) | undefined
}

/** Said in the place of no rows, when the reader has filtered them. */
export const NoMatch = ({ more, noun }: NoMatchProps) => (
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
