import { type Done, hasStepped, type History, isUncertain, type Violation } from "../history.ts"
import { type Group, groups } from "../network.ts"
import { isLinearizable, type Step } from "./linearizable.ts"

/** How far the clock of a replica may be from the true time, in milliseconds; and if a clock has stepped. */
const clockErrorMillis = 3_000
const steppedMillis = 100_000

type State = "open" | "ended"

/** What is known of a session that somebody got. */
interface Session {
  readonly session: string
  readonly sub: string
  readonly sid: string
  readonly group: Group
  /** When its id token ends. */
  readonly until: number
}

/** Whether an operation ends the session: a sign-in of the person with another group takes the role away. */
const isEnd = ({ args, kind }: Done, { group, session, sid, sub }: Session) => {
  if (kind === "leave") return args["session"] === session
  if (kind === "logOut") return args["sub"] === sub || args["sid"] === sid
  return (kind === "enter" || kind === "loseRole") && args["sub"] === sub && args["group"] !== group
}

const stepsOf = (made: Done, own: Session, history: History): ReadonlyArray<Step<State>> => {
  const isStepped = hasStepped(history, Infinity)
  const error = isStepped ? steppedMillis : clockErrorMillis
  const only = (wanted: State) => (state: State) => (state === wanted ? [state] : [])
  const steps = history.done.flatMap((one): ReadonlyArray<Step<State>> => {
    const isUse = one.kind === "usePerson" && one.args["session"] === own.session
    if (one === made || (!isUse && !isEnd(one, own))) return []
    return one.tries.flatMap((each): ReadonlyArray<Step<State>> => {
      const { end, start, status } = each
      if (isUncertain(each)) return isUse ? [] : [{ from: start, to: Infinity, after: () => ["ended"] }]
      if (end < made.start) return []
      if (isUse || status === 401) {
        // The end of an id token comes earlier at one replica than at another.
        if (start < own.until + error && end > own.until - error) return []
        const after = only(status === 401 ? "ended" : "open")
        return [{ from: start, to: end, after, isRead: true }]
      }
      // Refused by a clock that is off; by which a session may also be newer than what ends it.
      if (status === 400 || status === 429) return []
      return [{ from: start, to: end, after: (state) => (isStepped ? [state, "ended"] : ["ended"]) }]
    })
  })
  return [...steps, { from: own.until, to: own.until, after: () => ["ended"] }]
}

/** A session of a person ends when it should, at every replica, and not before; its role and its org are theirs. */
export const people = (history: History): ReadonlyArray<Violation> =>
  history.done.flatMap((made): ReadonlyArray<Violation> => {
    if (made.kind !== "enter" || made.status !== 303) return []
    const own = made.args as unknown as Session
    const { orgId, role } = groups[own.group]
    const says = (at: number, what: string) => [{ oracle: "people", at, what: `${own.session} ${what}` }]
    const uses = history.done.filter(({ args, kind }) => kind === "usePerson" && args["session"] === own.session)
    const wrong = uses.flatMap(({ args, body, end, status }) => {
      const asked = args["orgId"]
      if (asked === undefined) {
        if (args["isPortal"] === true) return []
        const isRight = body?.person?.subject === own.sub && body.person.role === role && body.orgId === orgId
        return status !== 200 || isRight ? [] : says(end, `is not a ${role} of ${String(orgId)}`)
      }
      const expected = orgId === null || orgId === asked ? 200 : 404
      return [200, 404].includes(status!) && status !== expected ? says(end, `sees ${String(asked)}: ${status}`) : []
    })
    const isExplained = isLinearizable<State>(stepsOf(made, own, history), ["open"])
    return isExplained ? wrong : [...wrong, ...says(history.endAt, "ended at no time that explains its answers")]
  })
