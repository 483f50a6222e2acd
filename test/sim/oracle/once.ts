import type { History, Violation } from "../history.ts"

/** What a client created with an idempotency key exists once, however often the request was sent. */
export const once = (history: History): ReadonlyArray<Violation> => [...again(history), ...existing(history)]

/** The same request with the same idempotency key is answered again as the first time. */
const again = ({ done }: History): ReadonlyArray<Violation> =>
  done.flatMap(({ again, body, end, kind, status, tenant }): ReadonlyArray<Violation> => {
    if (again?.status === undefined || again.status >= 500) return []
    if (again.status === status && JSON.stringify(again.body) === JSON.stringify(body)) return []
    const isGone = done.some((one) => one.kind === "deleteOrg" && one.tenant === tenant)
    const what = `${kind} of ${tenant} was answered ${String(status)}, and once more with ${again.status}`
    return isGone ? [] : [{ oracle: "once", at: end, what }]
  })

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
