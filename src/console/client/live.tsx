import { type ComponentChildren, createContext } from "preact"
import { useContext, useEffect, useState } from "preact/hooks"
import { queries } from "./queries.ts"

type LiveTopic = "delivery" | "job" | "deployment" | "endpoint"

/** The operations whose responses a topic changes, by the beginning of their ids. */
const changed: Record<LiveTopic, ReadonlyArray<string>> = {
  delivery: ["deliveries.", "events.", "webhooks.get", "activity."],
  endpoint: ["webhooks.", "activity.failing"],
  job: ["jobs.", "schedules.get", "activity.overview"],
  deployment: ["deployments.", "projects.", "docs.get"],
}
const topics = Object.keys(changed) as ReadonlyArray<LiveTopic>

/** How long changes are collected before the page refreshes, and the shortest time between two refreshes. */
const collectMillis = 150
const minimumMillis = 1_000
/** How long the page waits before it opens a refused stream again. */
const reopenMillis = 10_000

/** Whether changes arrive. */
const LiveContext = createContext(false)

const idOf = (key: ReadonlyArray<unknown>) => String(key[0] === "pages" ? key[1] : key[0])

/** Refreshes what the topics change: soon after the first change, and at most once a second. */
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
const follow = (orgId: string | undefined, onState: (isLive: boolean) => void) => {
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
      // Without a stream, the page refreshes everything each time it tries to open the stream.
      void queries.invalidateQueries()
      timer = setTimeout(open, reopenMillis)
    })
    source.addEventListener("reset", () => topics.forEach(add))
    for (const topic of topics) source.addEventListener(topic, () => add(topic))
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
  const [isLive, setLive] = useState(false)
  useEffect(() => {
    if (!isAllowed) return
    return follow(orgId, setLive)
  }, [orgId, isAllowed])
  return <LiveContext.Provider value={isLive}>{children}</LiveContext.Provider>
}

export const useIsLive = () => useContext(LiveContext)
