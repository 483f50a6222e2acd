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
