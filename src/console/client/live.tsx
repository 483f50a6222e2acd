import { type ComponentChildren, createContext } from "preact"
import { useContext, useEffect, useRef, useState } from "preact/hooks"
import { queries } from "./queries.ts"

export type LiveTopic = "delivery" | "job" | "deployment" | "endpoint"
export interface LiveEvent {
  readonly topic: LiveTopic
  readonly orgId: string
  readonly [field: string]: string | number | null
}

/** The operations whose answers a topic changes, by the beginning of their ids. */
const changed: Record<LiveTopic, ReadonlyArray<string>> = {
  delivery: ["deliveries.", "events.", "webhooks.get", "activity."],
  endpoint: ["webhooks.", "activity.failing"],
  job: ["jobs.", "schedules.get", "activity.overview"],
  deployment: ["deployments.", "projects.", "docs.get"],
}
const topics = Object.keys(changed) as ReadonlyArray<LiveTopic>

/** How long changes are collected before the page asks again, and how often it asks at most. */
const collectMillis = 150
const minimumMillis = 1_000
/** When a stream that was refused is asked for again. */
const reopenMillis = 10_000

type Listener = (event: LiveEvent) => void
interface Live {
  /** Whether changes arrive. */
  readonly isLive: boolean
  readonly listeners: Set<Listener>
}
const LiveContext = createContext<Live>({ isLive: false, listeners: new Set() })

const idOf = (key: ReadonlyArray<unknown>) => String(key[0] === "pages" ? key[1] : key[0])

/** Asks again for what the topics change, soon for the first change and once a second for many. */
const refetcher = () => {
  const waiting = new Set<LiveTopic>()
  let timer: ReturnType<typeof setTimeout> | undefined
  let last = 0
  const run = () => {
    timer = undefined
    last = Date.now()
    const prefixes = [...waiting].flatMap((topic) => changed[topic])
    waiting.clear()
    void queries.invalidateQueries({
      predicate: ({ meta, queryKey }) =>
        meta?.["isLive"] === true && prefixes.some((prefix) => idOf(queryKey).startsWith(prefix)),
    })
  }
  return {
    add: (topic: LiveTopic) => {
      waiting.add(topic)
      timer ??= setTimeout(run, Math.max(collectMillis, last + minimumMillis - Date.now()))
    },
    stop: () => clearTimeout(timer),
  }
}

/** Follows the changes of an org, or of all. Returns what ends it. */
const follow = (orgId: string | undefined, onEvent: Listener, onState: (isLive: boolean) => void) => {
  let source: EventSource | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  const { add, stop } = refetcher()
  const close = () => {
    clearTimeout(timer)
    source?.close()
    source = undefined
  }
  const open = () => {
    close()
    // A hidden tab shows nothing; browsers allow six connections to a server for all tabs.
    if (document.hidden) return onState(false)
    source = new EventSource(`/api/v0/live${orgId === undefined ? "" : `?orgId=${orgId}`}`)
    source.addEventListener("open", () => onState(true))
    source.addEventListener("error", () => {
      onState(false)
      if (source?.readyState !== EventSource.CLOSED) return
      // Without a stream the page asks for everything, as often as it asks for the stream.
      void queries.invalidateQueries()
      timer = setTimeout(open, reopenMillis)
    })
    source.addEventListener("reset", () => topics.forEach(add))
    for (const topic of topics) {
      source.addEventListener(topic, ({ data }: MessageEvent<string>) => {
        add(topic)
        onEvent({ ...(JSON.parse(data) as LiveEvent), topic })
      })
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

/** Keeps what the page shows up to date: one stream for a page, none for a tab that nobody sees. */
export const LiveProvider = ({
  children,
  isAllowed,
  orgId,
}: {
  readonly orgId: string | undefined
  readonly isAllowed: boolean
  readonly children: ComponentChildren
}) => {
  const [isLive, setLive] = useState(false)
  const listeners = useRef(new Set<Listener>()).current
  useEffect(() => {
    if (!isAllowed) return
    return follow(orgId, (event) => listeners.forEach((listener) => listener(event)), setLive)
  }, [orgId, isAllowed])
  return <LiveContext.Provider value={{ isLive, listeners }}>{children}</LiveContext.Provider>
}

export const useIsLive = () => useContext(LiveContext).isLive

/** Calls `listener` for each change, for pages that show more than an answer asked again. */
export const useLiveEvents = (listener: Listener) => {
  const { listeners } = useContext(LiveContext)
  const latest = useRef(listener)
  latest.current = listener
  useEffect(() => {
    const own: Listener = (event) => latest.current(event)
    listeners.add(own)
    return () => void listeners.delete(own)
  }, [listeners])
}
