import type { EventFilter } from "#src/domain/webhooks/EventFilter.ts"

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The field at a path; `undefined` where there is none, or where a list is on the way. */
const at = (value: unknown, path: string): unknown =>
  path
    .split(".")
    .reduce<unknown>((found, name) => (isRecord(found) && Object.hasOwn(found, name) ? found[name] : undefined), value)

const isOneOf = (found: unknown, values: unknown) => [values].flat().some((value) => value === found)
const compare = (found: unknown, value: unknown, holds: (order: number) => boolean) => {
  if (typeof found === "number" && typeof value === "number") return holds(found - value)
  if (typeof found !== "string" || typeof value !== "string") return false
  // By code points, as PostgreSQL does.
  return holds(Buffer.compare(Buffer.from(found), Buffer.from(value)))
}

const operators: Record<string, (found: unknown, value: unknown) => boolean> = {
  gt: (found, value) => compare(found, value, (order) => order > 0),
  gte: (found, value) => compare(found, value, (order) => order >= 0),
  lt: (found, value) => compare(found, value, (order) => order < 0),
  lte: (found, value) => compare(found, value, (order) => order <= 0),
  not: (found, values) => !isOneOf(found, values),
  starts_with: (found, text) => typeof found === "string" && found.startsWith(String(text)),
  exists: (found, isThere) => (found !== undefined) === isThere,
}

const holds = (filter: object, body: unknown): boolean =>
  Object.entries(filter).every(([field, condition]) => {
    if (field === "not") return !holds(condition, body)
    if (field === "any") return (condition as ReadonlyArray<object>).some((one) => holds(one, body))
    const found = at(body, field)
    return isRecord(condition)
      ? Object.entries(condition).every(([name, value]) => operators[name]!(found, value))
      : isOneOf(found, condition)
  })

/** Whether a filter is true of an event: the rule of SQL, without SQL. */
export const passes = (filter: EventFilter | null, body: string) => filter === null || holds(filter, JSON.parse(body))
