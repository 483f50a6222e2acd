import { type Done, hasStepped, type History, isUncertain, type Violation } from "../history.ts"

/** How long it takes at most until documentation is fetched and stored, while nothing is wrong. */
const fetchMillis = 30_000

/** What somebody has read: the pages of the version, each with its number and how many there are. */
const pagesOf = ({ body, status }: Done) =>
  status === 404
    ? []
    : [...body.message!.matchAll(/version (\d+) page (\d+) of (\d+)/g)].map(([, version, page, count]) => ({
        version: Number(version),
        page: Number(page),
        count: Number(count),
      }))

/**
 * Readers see one version of documentation, whole; after it no older one, the newest one soon, and none that was
 * removed.
 */
export const docs = (history: History): ReadonlyArray<Violation> => {
  const { done, faults, received } = history
  const isCalm = (from: number, to: number) => !faults.some(({ end, start }) => start <= to && end >= from)
  const kinds = new Set(["readDocs", "putDocs", "removeDocs"])
  const ofProjects = Map.groupBy(
    done.filter(({ kind }) => kinds.has(kind)),
    ({ args }) => String(args["project"]),
  )
  return [...ofProjects].flatMap(([project, own]) => {
    const changes = own.filter(({ kind }) => kind !== "readDocs")
    // A change without an answer may be made after those that follow it.
    const isCertain = changes.every(({ tries }) => !tries.some(isUncertain))
    const reads = own
      .filter(({ kind, status }) => kind === "readDocs" && (status === 200 || status === 404))
      .map((one) => ({ one, pages: pagesOf(one), version: pagesOf(one)[0]?.version ?? 0 }))
    return reads.flatMap(({ one: { end, start, status }, pages, version }): ReadonlyArray<Violation> => {
      const says = (what: string) => [{ oracle: "docs", at: end, what: `${project} ${what}` }]
      const isWhole = pages.every(
        (each, n) => each.version === version && each.page === n && each.count === pages.length,
      )
      if (status === 200 && (pages.length === 0 || !isWhole)) return says("is not read whole")
      const last = changes.filter((change) => change.start < end).at(-1)
      if (!isCertain || last === undefined) return []
      if (last.kind === "removeDocs") return version > 0 && last.end < start ? says("is read after its removal") : []
      if (reads.some((other) => other.one.end < start && other.version > version)) return says(`is ${version} again`)
      const isFetched = received.every(({ status, url }) => url !== last.args["url"] || status === 200)
      const isLate = last.end + fetchMillis < start && isFetched && isCalm(last.start - 60_000, end)
      return isLate && version !== last.args["version"] && !hasStepped(history, end)
        ? says(`is ${version} for long`)
        : []
    })
  })
}
