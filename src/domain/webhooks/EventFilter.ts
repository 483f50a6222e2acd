import { Schema } from "effect"
import { isRawNumber, type RawNumber } from "../exactJson.ts"
import { cut, Metadata } from "../Schemas.ts"

const maxConditions = 20
const maxDepth = 4
const maxValues = 50
const maxTextLength = 200
const pathForm = /^[A-Za-z0-9_-]{1,64}(\.[A-Za-z0-9_-]{1,64}){0,9}$/u

type Scalar = string | number | RawNumber | boolean | null
const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !isRawNumber(value)
/** A number that PostgreSQL has, too: it has at most 16,383 decimals. */
const isNumber = (value: unknown): value is number | RawNumber =>
  typeof value === "number" || (isRawNumber(value) && !/e[+-]?0*\d{4}/i.test(value.rawJSON))
const isText = (value: unknown): value is string =>
  typeof value === "string" && value.length <= maxTextLength && !value.includes("\0") && value.isWellFormed()
const isScalar = (value: unknown): value is Scalar =>
  value === null || isText(value) || isNumber(value) || typeof value === "boolean"
const isOrdered = (value: unknown) => isText(value) || isNumber(value)

/** A predicate that is false where PostgreSQL cannot decide: a field is absent, or has another type. */
const known = (predicate: string) => `((${predicate}) && !((${predicate}) is unknown))`
const isOneOf = (path: string, values: ReadonlyArray<Scalar>) =>
  known(values.map((value) => `${path} == ${JSON.stringify(value)}`).join(" || "))

/** What an operator takes, and its predicate of SQL/JSON. */
interface Operator {
  readonly takes: string
  readonly predicate: (path: string, value: unknown) => string | undefined
}
const values = (value: unknown): ReadonlyArray<Scalar> | undefined => {
  const all: ReadonlyArray<unknown> = Array.isArray(value) ? value : [value]
  return all.length > 0 && all.length <= maxValues && all.every(isScalar) ? all : undefined
}
const comparison = (sign: string): Operator => ({
  takes: `a number, or a text of at most ${maxTextLength} characters`,
  predicate: (path, value) => (isOrdered(value) ? known(`${path} ${sign} ${JSON.stringify(value)}`) : undefined),
})
const valuesText = `a text of at most ${maxTextLength} characters, a number, true, false, null, or a list of 1 to ${maxValues} of these`

const operators: Readonly<Record<string, Operator>> = {
  gt: comparison(">"),
  gte: comparison(">="),
  lt: comparison("<"),
  lte: comparison("<="),
  not: {
    takes: valuesText,
    predicate: (path, value) => {
      const found = values(value)
      return found && `!(${isOneOf(path, found)})`
    },
  },
  starts_with: {
    takes: `a text of at most ${maxTextLength} characters`,
    predicate: (path, value) => (isText(value) ? known(`${path} starts with ${JSON.stringify(value)}`) : undefined),
  },
  exists: {
    takes: "true or false",
    predicate: (path, value) =>
      typeof value === "boolean" ? `${value ? "" : "!"}(${known(`exists(${path})`)})` : undefined,
  },
}

/**
 * Translates a filter to a path of SQL/JSON whose predicate is always true or false. It costs a few look-ups in objects
 * for each condition, whatever the event: it never walks through a list, and has no regular expression.
 *
 * @returns the path, or what is wrong with the filter
 */
const translate = (filter: unknown): { readonly path: string } | { readonly fault: string } => {
  let fault: string | undefined
  let conditions = 0
  const refuse = (text: string) => {
    fault ??= text
    return ""
  }

  const all = (one: unknown, depth: number): string => {
    if (!isObject(one) || Object.keys(one).length === 0)
      return refuse("must be an object with at least one field, also in any and not")
    if (depth > maxDepth) return refuse(`must have any and not at most ${maxDepth - 1} deep`)
    return Object.entries(one)
      .map(([field, condition]) => `(${member(field, condition, depth)})`)
      .join(" && ")
  }

  const member = (field: string, condition: unknown, depth: number): string => {
    if (field === "not") return `!(${all(condition, depth + 1)})`
    if (field === "any") {
      return Array.isArray(condition) && condition.length > 0
        ? condition.map((one) => `(${all(one, depth + 1)})`).join(" || ")
        : refuse("must have a list of filters in any")
    }
    if (!pathForm.test(field)) {
      return refuse(
        `must have paths in place of ${JSON.stringify(cut(field, 80))}: names of fields joined by full stops, as in data.plan`,
      )
    }
    const path = `$.${field
      .split(".")
      .map((name) => JSON.stringify(name))
      .join(".")}`
    if (!isObject(condition)) {
      conditions++
      const found = values(condition)
      return found === undefined ? refuse(`must give ${field} ${valuesText}, or operators`) : isOneOf(path, found)
    }
    const asked = Object.entries(condition)
    conditions += asked.length
    if (asked.length === 0) return refuse(`must give ${field} an operator: ${Object.keys(operators).join(", ")}`)
    return asked
      .map(([name, value]) => {
        if (!Object.hasOwn(operators, name)) {
          const shown = JSON.stringify(cut(name, 80))
          return refuse(`must give ${field} one of the operators ${Object.keys(operators).join(", ")}, not ${shown}`)
        }
        const { predicate, takes } = operators[name]!
        return predicate(path, value) ?? refuse(`must give ${name} of ${field} ${takes}`)
      })
      .join(" && ")
  }

  const path = `strict ${all(filter, 1)}`
  if (conditions > maxConditions) refuse(`must have at most ${maxConditions} conditions`)
  return fault === undefined ? { path } : { fault }
}

/** The path of SQL/JSON that matches the events of a filter. */
export const filterPath = (filter: EventFilter): string => {
  const found = translate(filter)
  if ("path" in found) return found.path
  throw new Error(`A filter that was checked is invalid: ${found.fault}`)
}

/** Which events an endpoint receives, by their content. */
export const EventFilter = Metadata.check(
  Schema.makeFilter(
    (filter: object) => {
      const found = translate(filter)
      return "fault" in found ? found.fault : undefined
    },
    { toJsonSchema: () => [{}, true] },
  ),
).annotate({
  examples: [{ "data.plan": ["pro", "team"], "data.amount": { gte: 1000 } }],
})
export type EventFilter = typeof EventFilter.Type
