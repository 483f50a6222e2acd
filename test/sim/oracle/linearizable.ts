/** One try of an operation on one thing. It takes effect at a moment between two times. */
export interface Step<State> {
  readonly from: number
  /** The last moment; `Infinity` if no answer came, and it may still take effect, or never. */
  readonly to: number
  /** The states after it if it runs in this state and is answered so; none if it cannot be answered so. */
  readonly after: (state: State) => ReadonlyArray<State>
  /** Whether it changes no state. */
  readonly isRead?: boolean
}

/** How many orders are looked at, before a history counts as allowed. */
const maxVisits = 20_000

/**
 * Whether an order of the steps explains all their answers: each takes effect at a moment of its own. Searches as in
 * "Testing for linearizability" (Lowe, 2017): depth first, and never twice from the same place in the same state. A
 * read that its state allows comes first: if there is an order, it may begin so, and without this the orders of a dozen
 * reads at the same time would take all visits.
 *
 * @param starts the states of which one is the first
 */
export const isLinearizable = <State extends string>(
  steps: ReadonlyArray<Step<State>>,
  starts: ReadonlyArray<State>,
): boolean => {
  const sorted = steps.toSorted((one, other) => one.from - other.from)
  const seen = new Set<string>()
  let visits = 0
  const search = (state: State, left: ReadonlyArray<number>): boolean => {
    const open = left.filter((n) => sorted[n]!.to < Infinity)
    if (open.length === 0) return true
    const place = `${state} ${left.join(",")}`
    if (seen.has(place)) return false
    seen.add(place)
    if (visits++ > maxVisits) return true
    const firstEnd = Math.min(...open.map((n) => sorted[n]!.to))
    const isAllowedRead = (n: number) => {
      const { after, from, isRead } = sorted[n]!
      return isRead === true && from <= firstEnd && after(state).length > 0
    }
    const read = left.find(isAllowedRead)
    if (read !== undefined)
      return search(
        state,
        left.filter((other) => other !== read),
      )
    for (const n of left) {
      const { after, from } = sorted[n]!
      if (from > firstEnd) break
      const rest = left.filter((other) => other !== n)
      if (after(state).some((next) => search(next, rest))) return true
    }
    return false
  }
  return starts.some((start) =>
    search(
      start,
      sorted.map((_, n) => n),
    ),
  )
}
