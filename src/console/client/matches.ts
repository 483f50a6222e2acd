import { useEffect } from "preact/hooks"

interface Pages<Row> {
  readonly rows: ReadonlyArray<Row> | undefined
  readonly error: Error | null
  readonly more: (() => void) | undefined
  readonly isLoadingMore: boolean
}

/** Limit of the rows that a search reads. After that, the reader decides whether it goes on. */
const maxSearched = 1_000

/**
 * The rows of a list that match, for what the operation does not filter by. While none matches, reads on, up to 1,000
 * rows. `matches` is undefined when the reader looks for nothing.
 */
export const useMatches = <Row, List extends Pages<Row>>(
  pages: List & Pages<Row>,
  matches: ((row: Row) => boolean) | undefined,
) => {
  const { error, isLoadingMore, more, rows } = pages
  const found = matches === undefined ? rows : rows?.filter(matches)
  const isSearching =
    matches !== undefined && found?.length === 0 && error === null && more !== undefined && rows!.length < maxSearched
  useEffect(() => {
    if (isSearching && !isLoadingMore) more()
  }, [isSearching, isLoadingMore, rows?.length])
  return { ...pages, rows: isSearching ? undefined : found }
}

/** Whether one of some texts contains what a reader looks for, in any case of letters. */
export const contains = (wanted: string, ...texts: ReadonlyArray<string | null>) =>
  texts.some((text) => text?.toLowerCase().includes(wanted.trim().toLowerCase()) === true)

/** A whole key: nobody shows it, and no address has it. */
export const wholeKey = /\b[a-z][a-z0-9_]{1,22}[a-z0-9]_[A-Za-z0-9]{42}\b/

/** A text without secrets, for an address: of a key in it, the prefix. */
export const withoutKey = (text: string) =>
  (/svc_[A-Za-z0-9]{9,}/.exec(text) ?? wholeKey.exec(text))?.[0].replace(/_([A-Za-z0-9]{8})[A-Za-z0-9]+$/, "_$1") ??
  text
