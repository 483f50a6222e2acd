import {
  type DefaultError,
  InfiniteQueryObserver,
  type InfiniteData,
  type InfiniteQueryObserverOptions,
  keepPreviousData,
  QueryClient,
  QueryObserver,
  type QueryObserverOptions,
  type QueryObserverResult,
} from "@tanstack/query-core"
import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { useOrgId } from "../navigation/org.ts"
import { actsForOrg, call, GatehouseError } from "./call.ts"
import type { ResponseBody, Args, OperationId } from "./Operations.ts"

const isWorthARetry = (count: number, error: Error) =>
  count < 2 && (!(error instanceof GatehouseError) || error.status >= 500)

/** The responses that pages show. What nobody shows is forgotten after five minutes. */
export const queries = new QueryClient({
  defaultOptions: { queries: { retry: isWorthARetry, staleTime: 5_000, gcTime: 300_000, networkMode: "always" } },
})

/** Begins with the id of the operation, so that live events find the responses that they change. */
const keyOf = (id: OperationId, args: object, orgId: string | undefined) => [id, args, orgId]

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

/** Renders again when what an observer shows has changed. */
const useResult = <Result>(
  observer: { readonly subscribe: (render: () => void) => () => void },
  read: () => Result,
) => {
  const [, render] = useState(0)
  useEffect(() => observer.subscribe(() => render((count) => count + 1)), [observer])
  return read()
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
  return { data: result.data as ResponseBody<Id> | undefined, error, refetch: () => void observer.refetch() }
}

/** The error of a response. It stays during a refresh, so that a page with a 404 keeps what was typed into it. */
const useKeptError = ({ error, status }: QueryObserverResult, key: string) => {
  const last = useRef<{ readonly key: string; readonly error: Error | null }>({ key, error: null })
  if (status !== "pending" || last.current.key !== key) last.current = { key, error }
  return last.current.error
}

const nextOf = (response: unknown) => {
  const page = response as { readonly nextCursor?: string | null; readonly next_cursor?: string | null }
  return page.nextCursor ?? page.next_cursor ?? undefined
}

/** The rows of a list, page by page. `rows` takes them out of a response. */
export const usePages = <Id extends OperationId, Row>(
  id: Id,
  args: Omit<Args<Id>, "cursor">,
  rows: (response: ResponseBody<Id>) => ReadonlyArray<Row>,
  options: DataOptions = {},
) => {
  const orgId = useOrgOf(id)
  type Data = InfiniteData<ResponseBody<Id>, string | undefined>
  const all: InfiniteQueryObserverOptions<
    ResponseBody<Id>,
    DefaultError,
    Data,
    ReadonlyArray<unknown>,
    string | undefined
  > = {
    ...(optionsOf(options) as object),
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
  const data = result.data as Data | undefined
  const shown = useMemo(() => data?.pages.flatMap(rows), [data])
  return {
    /** undefined while the first page is on its way. */
    rows: shown,
    error: result.error,
    /** Reads the next page; undefined after the last. */
    more: result.hasNextPage ? () => void observer.fetchNextPage() : undefined,
    isLoadingMore: result.isFetchingNextPage,
    refetch: () => void observer.refetch(),
  }
}

/**
 * Calls operations that change something, then refreshes the page. Before that, `leave` goes to another page when this
 * one shows what was deleted.
 */
export const useCall = (leave?: () => void) => {
  const orgId = useOrgId()
  return async <Id extends OperationId>(id: Id, args: Args<Id>, idempotencyKey?: string) => {
    try {
      const response = await call(id, args, { orgId, idempotencyKey })
      leave?.()
      return response
    } finally {
      // Also after a failure: a conflict says that something has changed, a 401 that the session has ended.
      void queries.invalidateQueries()
    }
  }
}
