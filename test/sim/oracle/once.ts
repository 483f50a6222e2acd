import { type History, isUncertain, type KeyedTry, type Violation } from "../history.ts"
import { isLinearizable, type Step } from "./linearizable.ts"

/** What a client created with an idempotency key exists once, however often the request was sent. */
export const once = (history: History): ReadonlyArray<Violation> => [...again(history), ...existing(history)]

/** Nothing was made with the key; or something, with the answer that all get from then on. */
type State = "none" | `made ${string}`

const stepOf = (one: KeyedTry, answers: ReadonlyArray<string>): Step<State> => {
  const { answer, end, isOther, start, status } = one
  const within = (after: Step<State>["after"]) => ({ from: start, to: end, after })
  if (isUncertain(one)) {
    const made = answers.map((answer): State => `made ${answer}`)
    return { from: start, to: Infinity, after: (state) => (state === "none" && !isOther ? made : [state]) }
  }
  // Refused because of another one in progress, or of too many requests.
  if (status === 409 || status === 429) return within((state) => [state])
  if (status === 200)
    return within((state) => (!isOther && (state === "none" || state === `made ${answer}`) ? [`made ${answer}`] : []))
  // A failure is not kept. Another request with a known key is refused.
  return within((state) => ((state === "none") === isOther ? [] : [state]))
}

/** The answers to all requests with one key have an order: the first success makes something, later ones repeat it. */
const again = ({ done }: History): ReadonlyArray<Violation> => {
  const deleted = new Set(done.filter(({ kind }) => kind === "deleteOrg").map(({ tenant }) => tenant))
  return done.flatMap(({ end, keyed, kind, tenant }): ReadonlyArray<Violation> => {
    if (deleted.has(tenant)) return []
    // What was made may have been answered to nobody.
    const answers = [...new Set(keyed.flatMap(({ answer }) => (answer === undefined ? [] : [answer]))), "unseen"]
    if (
      isLinearizable<State>(
        keyed.map((one) => stepOf(one, answers)),
        ["none"],
      )
    )
      return []
    const all = keyed.map(({ isOther, status }) => `${isOther ? "other " : ""}${status ?? "nothing"}`).join(", ")
    const what = `no order explains the answers to ${kind} of ${tenant} with one key: ${all}`
    return [{ oracle: "once", at: end, what }]
  })
}

const existing = ({ done, endAt, rows }: History): ReadonlyArray<Violation> => {
  // A rotation copies the name of its key.
  const rotated = new Set(done.filter(({ kind }) => kind === "rotateKey").map(({ args }) => args["keyId"]))
  const counts = new Map<string, number>()
  for (const { id, kind, name } of rows["names"]!) {
    if (kind === "key" && (rotated.has(id) || done.some((one) => one.kind === "rotateKey" && one.body?.id === id)))
      continue
    const key = `${String(kind)} ${String(name)}`
    counts.set(key, (counts.get(key) ?? 0) + 1)
  }
  return [...counts].flatMap(([key, count]) =>
    count === 1 ? [] : [{ oracle: "once", at: endAt, what: `${key} was asked for once, and exists ${count} times` }],
  )
}
