import { type ComponentChildren, createContext } from "preact"
import { useContext, useEffect, useState } from "preact/hooks"
import type { OperationId } from "./Operations.ts"
import { answers, bearerHeader, serviceNow } from "./call.ts"
import { isInFrame } from "./embedded.ts"
import { patchRows, refresh } from "./queries.ts"

type LiveTopic = "delivery" | "job" | "deployment" | "endpoint"

/** The operations whose responses a topic changes, by the beginning of their ids. */
const changed: Record<LiveTopic, ReadonlyArray<string>> = {
  delivery: ["deliveries.", "events.list", "webhooks.get", "activity."],
  endpoint: ["webhooks.", "activity.failing"],
  job: ["jobs.", "schedules.get", "activity.overview"],
  deployment: ["deployments.", "projects.", "docs.get"],
}
const topics = Object.keys(changed) as ReadonlyArray<LiveTopic>

/** How long changes are collected before the page refreshes. */
const collectMillis = 150
/** The time between two refreshes, for each request of the first one: at most two requests a second. */
const requestMillis = 500
const minimumMillis = 1_000
/** Responses that are as old as this when a stream begins may have missed a change; younger ones are read later. */
const youngMillis = 2_000
/** The longest silence of a stream: two of its pings, which come every 15 seconds. */
const maxSilentMillis = 31_000
/** How long the page waits before it opens a refused stream again. */
const reopenMillis = 10_000

/** Whether changes arrive; if not, since when they do not. */
interface LiveState {
  readonly isLive: boolean
  readonly goneSince?: number
}
const LiveContext = createContext<LiveState>({ isLive: false })

const idOf = (key: ReadonlyArray<unknown>) => String(key[0] === "pages" ? key[1] : key[0])

/** The fields of the rows that an event changes, with the key of the row. */
const changeOf = (topic: LiveTopic, data: string): readonly [OperationId, string, object] | undefined => {
  if (topic === "job") {
    const { jobId, status } = JSON.parse(data) as { readonly jobId: string; readonly status: string }
    return ["jobs.list", jobId, { status }]
  }
  if (topic !== "delivery") return undefined
  const { attempts, deliveryId, failure, state, status } = JSON.parse(data) as Record<string, string>
  const last = { last_failure: failure, last_status: status, last_duration_ms: null }
  const ended = state === "pending" ? {} : { next_attempt_at: null }
  return ["deliveries.list", deliveryId!, { attempts, state, ...last, ...ended }]
}

/** Refreshes what the topics change: soon after the first change, and not more often than the server likes. */
const refresher = () => {
  const waiting = new Set<LiveTopic>()
  const changes = new Map<OperationId, Map<string, object>>()
  let timer: ReturnType<typeof setTimeout> | undefined
  let next = 0
  const run = async () => {
    const prefixes = [...waiting].flatMap((topic) => changed[topic])
    waiting.clear()
    for (const [operation, rows] of changes) patchRows(operation, rows)
    changes.clear()
    const since = Date.now()
    const requests = await refresh(
      ({ meta, queryKey }) => meta?.["isLive"] === true && prefixes.some((prefix) => idOf(queryKey).startsWith(prefix)),
    )
    next = since + Math.max(minimumMillis, requests * requestMillis)
    timer = undefined
    if (waiting.size > 0) plan()
  }
  const plan = () => {
    timer ??= setTimeout(run, Math.max(collectMillis, next - Date.now()))
  }
  return {
    add: (topic: LiveTopic, data: string) => {
      const change = changeOf(topic, data)
      if (change !== undefined) {
        const [operation, key, fields] = change
        changes.set(operation, (changes.get(operation) ?? new Map<string, object>()).set(key, fields))
      }
      waiting.add(topic)
      plan()
    },
    stop: () => clearTimeout(timer),
  }
}

/** Refreshes the responses that are older than a time. */
const refreshOlder = (at: number) =>
  void refresh(({ meta, state }) => meta?.["isLive"] === true && state.dataUpdatedAt < at)

/** An EventSource for a frame, whose session is a header: an EventSource sends none. It ends with its response. */
class HeaderEvents extends EventTarget {
  readyState: number = EventSource.CONNECTING
  readonly #abort = new AbortController()

  constructor(path: string) {
    super()
    void this.#read(path).then(this.#end, this.#end)
  }

  async #read(path: string) {
    const { signal } = this.#abort
    const { body, ok } = await globalThis.fetch(path, { headers: bearerHeader(), credentials: "omit", signal })
    if (!ok || body === null) return
    this.dispatchEvent(new Event("open"))
    const reader = body.pipeThrough(new TextDecoderStream()).getReader()
    let rest = ""
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      const all = (rest + next.value).split("\n\n")
      rest = all.pop()!
      for (const one of all) {
        const [, event] = /^event: *(.*)$/m.exec(one) ?? []
        const [, data = ""] = /^data: *(.*)$/m.exec(one) ?? []
        if (event !== undefined) this.dispatchEvent(new MessageEvent(event, { data }))
      }
    }
  }

  readonly #end = () => {
    this.readyState = EventSource.CLOSED
    if (!this.#abort.signal.aborted) this.dispatchEvent(new Event("error"))
  }

  close() {
    this.#abort.abort()
  }
}

/** Follows the changes of an org, or of all. Returns what ends it. */
const follow = (orgId: string | undefined, onState: (change: (now: LiveState) => LiveState) => void) => {
  let source: EventSource | HeaderEvents | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  let silence: ReturnType<typeof setTimeout> | undefined
  const { add, stop } = refresher()
  const close = () => {
    clearTimeout(timer)
    clearTimeout(silence)
    source?.close()
    source = undefined
  }
  const gone = (since: number) => onState(({ goneSince = since }) => ({ isLive: false, goneSince }))
  /** Without a stream, the page refreshes everything each time it tries to open the stream. */
  const openLater = () => {
    close()
    void refresh()
    timer = setTimeout(open, reopenMillis)
  }
  const listen = () => {
    const since = serviceNow()
    clearTimeout(silence)
    silence = setTimeout(() => {
      gone(since)
      openLater()
    }, maxSilentMillis)
  }
  const open = () => {
    close()
    // A hidden tab shows nothing; browsers allow six connections to a server for all tabs.
    if (document.hidden) return onState(() => ({ isLive: false }))
    const path = `/api/v0/live${orgId === undefined ? "" : `?orgId=${orgId}`}`
    source = isInFrame ? new HeaderEvents(path) : new EventSource(path)
    listen()
    for (const event of ["open", "ping", "reset", ...topics]) source.addEventListener(event, listen)
    source.addEventListener("open", () => onState(() => ({ isLive: true })))
    source.addEventListener("error", () => {
      const since = serviceNow()
      const failed = source
      onState((now) => ({ ...now, isLive: false }))
      void answers().then((isThere) => {
        if (source !== undefined && source !== failed) return
        if (isThere) onState(({ isLive }) => ({ isLive }))
        else gone(since)
      })
      if (source?.readyState === EventSource.CLOSED) openLater()
    })
    source.addEventListener("reset", () => {
      const now = Date.now()
      refreshOlder(now - youngMillis)
      timer = setTimeout(() => refreshOlder(now), youngMillis)
    })
    for (const topic of topics) {
      source.addEventListener(topic, (event) => add(topic, (event as MessageEvent<string>).data))
    }
  }
  open()
  document.addEventListener("visibilitychange", open)
  return () => {
    document.removeEventListener("visibilitychange", open)
    close()
    stop()
  }
}

/** Keeps the page up to date: one stream for a page, and none while the tab is hidden. */
export const LiveProvider = ({
  children,
  isAllowed,
  orgId,
}: {
  readonly orgId: string | undefined
  readonly isAllowed: boolean
  readonly children: ComponentChildren
}) => {
  const [state, setState] = useState<LiveState>({ isLive: false })
  useEffect(() => {
    if (!isAllowed) return
    return follow(orgId, setState)
  }, [orgId, isAllowed])
  return <LiveContext.Provider value={state}>{children}</LiveContext.Provider>
}

export const useIsLive = () => useContext(LiveContext).isLive
export const useGoneSince = () => useContext(LiveContext).goneSince
