import { Arbitrary } from "effect"
import { constant, deepValue, json, oneOf, rawJson, rawNumber, text, weighted } from "./arbitraries.ts"
import type { Described, Raw } from "./document.ts"

type Arb<A> = Arbitrary.Arbitrary<A>

/**
 * A placeholder for the id of an existing resource. It is replaced when the request is sent, so that a case is the same
 * in every run.
 */
const idOf = (name: string): Arb<string> =>
  weighted([4, constant(`@own:${name}@`)], [4, constant(`@theirs:${name}@`)], [1, constant(`@gone:${name}@`)])

/** Whether a field or parameter holds an id. */
const isId = (name: string) => /^(id|key)$|(_id|Id)$/.test(name)

/** The example body of the document, with ids of `whose`. */
export const exampleOf = (media: NonNullable<Described["body"]>, whose: "own" | "theirs"): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(tame(media.example) as object).map(([name, value]) => [
      name,
      isId(name) && typeof value === "string" ? `@${whose}:${name}@` : value,
    ]),
  )

/** Replaces urls of an example by one where nothing listens, so that nothing leaves this machine. */
const tame = (example: unknown): unknown =>
  JSON.parse(JSON.stringify(example).replace(/(https?):\/\/[^/"]+/g, "$1://127.0.0.1:9"))

type Resolve = Described["resolve"]

/** A value that a schema accepts, as far as the schema says. */
export const valid = (raw: Raw, resolve: Resolve, name = ""): Arb<unknown> => {
  const schema = resolve(raw)
  const made = build(schema, resolve)
  if (isId(name) && schema["type"] === "string") return idOf(name)
  const examples = schema["examples"] as ReadonlyArray<unknown> | undefined
  if (examples === undefined) return made
  return weighted([3, oneOf(...examples.map(tame))], [1, made])
}

const build = (schema: Raw, resolve: Resolve): Arb<unknown> => {
  const at = (name: string, otherwise: number) => (schema[name] as number | undefined) ?? otherwise
  if (schema["enum"] !== undefined) return oneOf(...(schema["enum"] as ReadonlyArray<unknown>))
  if (schema["anyOf"] !== undefined) {
    return weighted(...(schema["anyOf"] as ReadonlyArray<Raw>).map((one) => [1, valid(one, resolve)] as const))
  }
  if (Array.isArray(schema["type"])) {
    const types = schema["type"] as ReadonlyArray<string>
    return weighted(...types.map((type) => [1, build({ ...schema, type }, resolve)] as const))
  }
  switch (schema["type"]) {
    case "object":
      return object(schema, resolve)
    case "array": {
      const bounds = { minLength: at("minItems", 0), maxLength: Math.min(at("maxItems", 3), 3) }
      return Arbitrary.array(valid((schema["items"] as Raw) ?? {}, resolve), bounds)
    }
    case "string":
      return Arbitrary.map(text, (text) => text.slice(0, at("maxLength", 300)).padEnd(at("minLength", 0), "a"))
    case "integer":
    case "number":
      return oneOf(at("minimum", 0), at("maximum", 7), 1, 2)
    case "boolean":
      return oneOf(true, false)
    case "null":
      return constant(null)
    default:
      return json
  }
}

const absent = Symbol("absent")

const object = (schema: Raw, resolve: Resolve): Arb<unknown> => {
  const required = new Set((schema["required"] as ReadonlyArray<string> | undefined) ?? [])
  const properties = Object.entries((schema["properties"] as Record<string, Raw> | undefined) ?? {})
  const fields = properties.map(([name, property]): readonly [string, Arb<unknown>] => {
    const value = valid(property, resolve, name)
    return [name, required.has(name) ? value : weighted<unknown>([1, constant(absent)], [1, value])]
  })
  return Arbitrary.map(Arbitrary.all(Object.fromEntries(fields)), (made) =>
    Object.fromEntries(Object.entries(made).filter(([, value]) => value !== absent)),
  )
}

/** A value that a schema refuses, or that is at its limit. */
const hostile = (schema: Raw): Arb<unknown> => {
  const maxLength = schema["maxLength"] as number | undefined
  const minimum = schema["minimum"] as number | undefined
  const maximum = schema["maximum"] as number | undefined
  const edges: ReadonlyArray<unknown> = [
    ...(maxLength === undefined ? [] : ["x".repeat(maxLength), "x".repeat(maxLength + 1), "😀".repeat(maxLength)]),
    ...(minimum === undefined ? [] : [minimum - 1, minimum + 0.5]),
    ...(maximum === undefined ? [] : [maximum + 1, String(maximum)]),
  ]
  const wrong = [null, "", [], {}, 0, -1, true, [null], "null", "\0", "\ud800", ["a", "b"], { $ne: null }, 1e308]
  return weighted<unknown>([3, oneOf(...wrong, ...edges)], [3, text], [2, rawNumber], [1, json], [1, deepValue])
}

/** Names that no schema has. */
const strangers = ["__proto__", "constructor", "toString", "hasOwnProperty", "_tag", "orgId", "org_id", "", "a\0b"]

/** A body with some of its fields changed, removed or added. */
const mutated = (media: NonNullable<Described["body"]>, resolve: Resolve): Arb<unknown> => {
  const properties = (resolve(media.schema)["properties"] as Record<string, Raw> | undefined) ?? {}
  const names = [...Object.keys(properties), ...strangers]
  const change = Arbitrary.flatMap(oneOf(...names), (name) =>
    Arbitrary.map(
      weighted<unknown>([1, constant(absent)], [5, hostile(resolve(properties[name] ?? {}))]),
      (value) => [name, value] as const,
    ),
  )
  const changes = Arbitrary.array(change, { minLength: 1, maxLength: 2 })
  return Arbitrary.map(Arbitrary.all([valid(media.schema, resolve), changes]), ([body, changes]) => {
    const entries = new Map([...Object.entries(body as object), ...changes])
    return Object.fromEntries([...entries].filter(([, value]) => value !== absent))
  })
}

/** The same JSON, damaged as text. */
const spoiled = (body: string): Arb<string> =>
  oneOf(
    body.slice(0, -1),
    `\ufeff${body}`,
    `${body}${body}`,
    `[${body}]`,
    `${body}\0`,
    JSON.stringify(body),
    // The last of two equal keys counts.
    body.replace(/^\{/, '{"__proto__":{"admin":true},"constructor":{"prototype":{}},'),
    body.replace(/^(\{("[^"]*"):)/, "{$2:null,$2:"),
    body.replace(/\}$/, `,"padding":"${"x".repeat(1024 * 1024)}"}`),
  )

/** Removes the waiting time of a claim, which would delay the test. */
export const withoutWaiting = (body: string) => body.replace(/"wait_seconds":\s*[\d.eE+]+/g, '"wait_seconds":0')

/** The text of a body for an operation: one that its schema accepts, a faulty one, or any text. */
export const bodyFor = ({ body, resolve }: Described): Arb<string | undefined> => {
  if (body === undefined) return weighted<string | undefined>([3, constant(undefined)], [1, oneOf("{}", "[]", "x")])
  const whole = valid({ ...resolve(body.schema), examples: [body.example] }, resolve)
  const written = weighted([4, whole], [6, mutated(body, resolve)], [1, json])
  return Arbitrary.flatMap(Arbitrary.map(written, rawJson), (body) =>
    weighted<string | undefined>([16, constant(body)], [2, spoiled(body)], [1, oneOf("", "null", "[]", "x")]),
  ).pipe(Arbitrary.map((body) => body && withoutWaiting(body)))
}
