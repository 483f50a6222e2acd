import {
  type DefaultError,
  InfiniteQueryObserver,
  type InfiniteData,
  type InfiniteQueryObserverOptions,
  keepPreviousData,
  type Query,
  QueryClient,
  QueryObserver,
  type QueryObserverOptions,
  type QueryObserverResult,
} from "@tanstack/query-core"
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks"
import { toast } from "../components/Toasts.tsx"
import { useOrgId } from "../navigation/org.ts"
import { actsForOrg, call, GatehouseError } from "./call.ts"
import type { ResponseBody, Args, OperationId } from "./Operations.ts"

const isWorthARetry = (count: number, error: Error) =>
  count < 2 && (!(error instanceof GatehouseError) || error.status >= 500)

/**
 * The response `after`, whose parts are those of `before` where they are equal, so that only what changed is drawn. The
 * client's own comparison copies a raw number, an object without a prototype, as an object.
 */
const structuralSharing = (before: unknown, after: unknown): unknown => {
  if (!(before instanceof Object && after instanceof Object) || Array.isArray(before) !== Array.isArray(after)) {
    const areObjects = typeof before === "object" && typeof after === "object"
    return areObjects && JSON.stringify(before) === JSON.stringify(after) ? before : after
  }
  const [old, names] = [before as Readonly<Record<string, unknown>>, Object.keys(after)]
  let isEqual = names.length === Object.keys(before).length
  const shared = names.map((name) => {
    const part = structuralSharing(old[name], (after as Readonly<Record<string, unknown>>)[name])
    isEqual &&= Object.hasOwn(before, name) && part === old[name]
    return [name, part] as const
  })
  if (isEqual) return before
  return Array.isArray(after) ? shared.map(([, part]) => part) : Object.fromEntries(shared)
}

/** The responses that pages show. What nobody shows is forgotten after five minutes. */
export const queries = new QueryClient({
  defaultOptions: {
    queries: { structuralSharing, retry: isWorthARetry, staleTime: 5_000, gcTime: 300_000, networkMode: "always" },
  },
})

/** Begins with the id of the operation, so that live events find the responses that they change. */
const keyOf = (id: OperationId, args: object, orgId: string | undefined) => [id, args, orgId]

/** Whether somebody has deleted it, or the reader may not see it any more: it is not shown as it was. */
const isGone = (error: Error | null) => error instanceof GatehouseError && [403, 404].includes(error.status)

/** Whether the page shows a response that could not be read again. */
export const isOutdated = () =>
  queries.getQueryCache().findAll({
    type: "active",
    predicate: ({ state: { data, error, status } }) => status === "error" && data !== undefined && !isGone(error),
  }).length > 0

interface DataOptions {
  /** false: does not ask yet. */
  readonly enabled?: boolean
  /** Refreshes after so many milliseconds: for what no live event reports. */
  readonly refetchMillis?: number
  /** false: live events do not refresh it, because it may be some time old. */
  readonly isLive?: boolean
  /** Shows the earlier response while another one is on its way: for filters and ranges. */
  readonly keepsPrevious?: boolean
}

/** How many earlier responses are shown in the place of others. While there are any, the page is busy and paler. */
let keptCount = 0
const countKept = (by: 1 | -1) => {
  keptCount += by
  document.getElementById("main")?.setAttribute("aria-busy", String(keptCount > 0))
}

/** Renders again when what an observer shows has changed. */
const useResult = <Result extends { readonly isPlaceholderData: boolean }>(
  observer: { readonly subscribe: (render: () => void) => () => void },
  read: () => Result,
) => {
  const [, render] = useState(0)
  useEffect(() => observer.subscribe(() => render((count) => count + 1)), [observer])
  const result = read()
  const { isPlaceholderData } = result
  useLayoutEffect(() => {
    if (!isPlaceholderData) return
    countKept(1)
    return () => countKept(-1)
  }, [isPlaceholderData])
  return result
}

const optionsOf = (options: DataOptions) => ({
  enabled: options.enabled ?? true,
  meta: { isLive: options.isLive ?? true },
  ...(options.refetchMillis === undefined ? {} : { refetchInterval: options.refetchMillis }),
  ...(options.keepsPrevious === true ? { placeholderData: keepPreviousData } : {}),
})

/** The org of the page, for operations that act for one. */
const useOrgOf = (id: OperationId) => {
  const orgId = useOrgId()
  return actsForOrg(id) ? orgId : undefined
}

/** The response of an operation, refreshed when a live event says that it may have changed. */
export const useData = <Id extends OperationId>(id: Id, args: Args<Id>, options: DataOptions = {}) => {
  const orgId = useOrgOf(id)
  const all: QueryObserverOptions<ResponseBody<Id>> = {
    ...(optionsOf(options) as object),
    queryKey: keyOf(id, args as object, orgId),
    queryFn: ({ signal }) => call(id, args, { orgId, signal }),
  }
  const [observer] = useState(() => new QueryObserver<ResponseBody<Id>>(queries, all))
  useEffect(() => observer.setOptions(all))
  const result = useResult(observer, () => observer.getOptimisticResult(queries.defaultQueryOptions(all) as never))
  const error = useKeptError(result, JSON.stringify(all.queryKey))
  const data = isGone(error) ? undefined : (result.data as ResponseBody<Id> | undefined)
  return { data, error, isEarlier: result.isPlaceholderData, refetch: () => void observer.refetch() }
}

/** The error of a response. It stays during a refresh, so that a page with a 404 keeps what was typed into it. */
const useKeptError = ({ error, status }: QueryObserverResult, key: string) => {
  const last = useRef<{ readonly key: string; readonly error: Error | null }>({ key, error: null })
  if (status !== "pending" || last.current.key !== key) last.current = { key, error }
  return last.current.error
}

/** The loaded pages of a list. `fresh`: how many newer rows the newest page has, which the reader has not asked for. */
interface Loaded extends InfiniteData<unknown, string | undefined> {
  readonly fresh?: number
}

/** How a list whose newest rows are first is kept up to date. */
interface Newest {
  readonly read: () => Promise<unknown>
  readonly keyOf: (row: unknown) => string
}

const newestOf = ({ meta, state }: Query) =>
  state.data === undefined ? undefined : (meta?.["newest"] as Newest | undefined)

const rowsName = (response: object) => Object.entries(response).find(([, value]) => Array.isArray(value))![0]

const mapRows = ({ pages, ...rest }: Loaded, map: (row: unknown) => unknown): Loaded => ({
  ...rest,
  pages: pages.map((page) => {
    const name = rowsName(page as object)
    const rows = (page as Record<string, ReadonlyArray<unknown>>)[name]!
    const mapped = rows.map(map)
    return mapped.some((row, i) => row !== rows[i]) ? { ...(page as object), [name]: mapped } : page
  }),
})

/** From here on, a list that changes above the reader would move away under them. */
const readingOffset = 300

/** Whether a list has rows that the reader loaded, or has scrolled to: newer ones then wait until they ask. */
const isRead = ({ pages }: Loaded) => pages.length > 1 || window.scrollY > readingOffset

/** Reads the newest page of a list alone: changes the rows that are loaded, and counts those that are newer. */
const readNewest = async ({ queryKey }: Query, { keyOf, read }: Newest) => {
  const page = (await read()) as Record<string, ReadonlyArray<unknown>>
  const rows = new Map(page[rowsName(page)]!.map((row) => [keyOf(row), row]))
  queries.setQueryData(queryKey, (loaded: Loaded | undefined) => {
    if (loaded === undefined) return undefined
    const changed = mapRows(loaded, (row) => {
      const now = rows.get(keyOf(row))
      rows.delete(keyOf(row))
      return now ?? row
    })
    return { ...changed, fresh: rows.size }
  })
}

/**
 * Asks again for the responses that are shown: all of a response, and of a long list that is read its newest page.
 *
 * @returns how many requests that is
 */
export const refresh = async (isWanted: (query: Query) => boolean = () => true) => {
  const lists = queries.getQueryCache().findAll({ type: "active", predicate: (query) => newestOf(query) !== undefined })
  const read = new Set(lists.filter((query) => isWanted(query) && isRead(query.state.data as Loaded)))
  const isOther = (query: Query) => isWanted(query) && !read.has(query)
  const count = read.size + queries.getQueryCache().findAll({ type: "active", predicate: isOther }).length
  const asked = [...read].map((query) => readNewest(query, newestOf(query)!).catch(() => undefined))
  await Promise.all([...asked, queries.invalidateQueries({ predicate: isOther })])
  return count
}

/** Changes the rows of loaded lists as live events say. `changes`: the changed fields by the key of the row. */
export const patchRows = (operation: OperationId, changes: ReadonlyMap<string, object>) => {
  const lists = queries.getQueryCache().findAll({ queryKey: ["pages", operation] })
  for (const query of lists) {
    const newest = newestOf(query)
    if (newest === undefined) continue
    const patched = (row: unknown) => {
      const change = changes.get(newest.keyOf(row))
      return change === undefined ? row : { ...(row as object), ...change }
    }
    const patchedList = mapRows(query.state.data as Loaded, patched)
    queries.setQueryData(query.queryKey, patchedList, { updatedAt: query.state.dataUpdatedAt })
  }
}

const nextOf = (response: unknown) => {
  const page = response as { readonly nextCursor?: string | null; readonly next_cursor?: string | null }
  return page.nextCursor ?? page.next_cursor ?? undefined
}

/**
 * The rows of a list, page by page. `rows` takes them out of a response. With `rowKey`, live changes leave what the
 * reader has loaded where it is, and ask for the newest page alone.
 */
export const usePages = <Id extends OperationId, Row>(
  id: Id,
  args: Omit<Args<Id>, "cursor">,
  rows: (response: ResponseBody<Id>) => ReadonlyArray<Row>,
  options: DataOptions & { readonly rowKey?: (row: Row) => string } = {},
) => {
  const orgId = useOrgOf(id)
  const { meta, ...common } = optionsOf(options)
  const newest = options.rowKey && { keyOf: options.rowKey, read: () => call(id, args as Args<Id>, { orgId }) }
  type Data = InfiniteData<ResponseBody<Id>, string | undefined>
  const all: InfiniteQueryObserverOptions<
    ResponseBody<Id>,
    DefaultError,
    Data,
    ReadonlyArray<unknown>,
    string | undefined
  > = {
    ...(common as object),
    meta: { ...meta, newest },
    queryKey: ["pages", ...keyOf(id, args, orgId)],
    queryFn: ({ pageParam, signal }) =>
      call(id, { ...args, ...(pageParam === undefined ? {} : { cursor: pageParam }) } as Args<Id>, { orgId, signal }),
    initialPageParam: undefined,
    getNextPageParam: nextOf,
  }
  const [observer] = useState(() => new InfiniteQueryObserver(queries, all))
  useEffect(() => observer.setOptions(all))
  const result = useResult(observer, () =>
    observer.getOptimisticResult(queries.defaultQueryOptions(all as never) as never),
  )
  const data = result.data as (Data & Loaded) | undefined
  const shown = useMemo(() => data?.pages.flatMap(rows), [data?.pages])
  const showFresh = () => {
    const first = ({ pageParams, pages }: Loaded) => ({ pages: pages.slice(0, 1), pageParams: pageParams.slice(0, 1) })
    queries.setQueryData(all.queryKey, (loaded: Loaded | undefined) => loaded && first(loaded))
    window.scrollTo(0, 0)
    void observer.refetch()
  }
  return {
    /** undefined while the first page is on its way. */
    rows: isGone(result.error) ? undefined : shown,
    error: result.error,
    /** Reads the next page; undefined after the last. */
    more: result.hasNextPage ? () => void observer.fetchNextPage() : undefined,
    isLoadingMore: result.isFetchingNextPage,
    refetch: () => void observer.refetch(),
    /** How many newer rows there are above those that the reader has loaded, and what shows them. */
    fresh: data?.fresh ?? 0,
    showFresh,
  }
}

/** All rows of a list, one page after the other. Only for lists that people make by hand. */
export const useAll = <Id extends OperationId, Row>(
  id: Id,
  args: Omit<Args<Id>, "cursor">,
  rowsOf: (response: ResponseBody<Id>) => ReadonlyArray<Row>,
) => {
  const { error, more, refetch, rows } = usePages(id, args, rowsOf, { isLive: false })
  useEffect(() => more?.(), [rows?.length])
  return { error, refetch, rows }
}

interface ChangeOptions {
  /** Another try after a failure has the same idempotency key: nothing is created twice. */
  readonly isOnce?: boolean
  /** What is said briefly when it is done. */
  readonly said?: string
}

/**
 * Calls operations that change something, then refreshes the page. Before that, `leave` goes to another page when this
 * one shows what was deleted.
 */
export const useCall = (leave?: () => void) => {
  const orgId = useOrgId()
  const key = useRef<string>(undefined)
  return async <Id extends OperationId>(id: Id, args: Args<Id>, { isOnce = false, said }: ChangeOptions = {}) => {
    try {
      const idempotencyKey = isOnce ? (key.current ??= crypto.randomUUID()) : undefined
      const response = await call(id, args, { orgId, idempotencyKey })
      leave?.()
      if (said !== undefined) toast(said)
      return response
    } finally {
      // Also after a failure: a conflict says that something has changed, a 401 that the session has ended.
      void refresh()
    }
  }
}
