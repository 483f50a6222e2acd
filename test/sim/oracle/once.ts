import type { History, Violation } from "../history.ts"

/** What a client created with an idempotency key exists once, however often the request was sent. */
export const once = ({ done, endAt, rows }: History): ReadonlyArray<Violation> => {
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
