import { exampleOf } from "../../http/abuse/bodies.ts"
import type { Described, Raw } from "../../http/abuse/document.ts"

/** The largest body that an operation takes, unless it says another size: 1 MiB, with room for the rest of the body. */
const room = 1024 * 1024 - 4_096

/** What long text is made of. Each is dear to something: folding of case, escapes, segments, patterns, separators. */
const units = ["a", "9", "* ", "(\u0001", "😀", "e\u0301\u0323", "\u0130", "%41", "a,", "a.", "[a-", "/../"]

const filled = (unit: string, length: number) =>
  unit
    .repeat(Math.ceil(length / unit.length))
    .slice(0, length)
    .toWellFormed()

const json = JSON.stringify
const list = (value: (n: number) => string, bytes: number, most = Infinity) => {
  const items: Array<string> = []
  for (let left = bytes; items.length < most && left > 0;)
    left -= items[items.push(value(items.length)) - 1]!.length + 1
  return `[${items.join()}]`
}
const members = (value: string, bytes: number, most = Infinity) =>
  `{${list((n) => `"m${n}":${value}`, bytes, most).slice(1, -1)}}`

/** JSON that is dear to read, check, copy or write, of at most so many bytes. */
const anything = (bytes: number): ReadonlyArray<string> => [
  list(() => "{}", bytes, 99_000),
  list((n) => `{"name":"n${n}","at":${n}.5}`, bytes, 33_000),
  list(() => "1.2345678901234567890123456789e-300", bytes, 99_000),
  list(() => `${"[".repeat(40)}${"]".repeat(40)}`, bytes, 2_400),
  members("{}", bytes, 19_900),
  `${'{"a":'.repeat(999)}1${"}".repeat(999)}`,
  "9".repeat(bytes),
  json(filled("\u0001", bytes / 6)),
]

interface Field {
  readonly schema: Raw
  readonly resolve: Described["resolve"]
  /** JSON that the field accepts. */
  readonly example: string
}

/** The types of a schema: itself, or the members of its union. */
const typesOf = (raw: Raw, resolve: Described["resolve"]): ReadonlyArray<Raw> => {
  const schema = resolve(raw)
  const all = (schema["anyOf"] ?? schema["oneOf"] ?? schema["allOf"]) as ReadonlyArray<Raw> | undefined
  if (all !== undefined) return all.flatMap((one) => typesOf(one, resolve))
  return Array.isArray(schema["type"]) ? schema["type"].map((type) => ({ ...schema, type })) : [schema]
}

const most = (schema: Raw, name: string) => (schema[name] as number | undefined) ?? Infinity
const propertiesOf = (schema: Raw) => Object.entries((schema["properties"] as Record<string, Raw> | undefined) ?? {})

/** The fields of an object, with an example of each. */
const fieldsOf = (schema: Raw, resolve: Described["resolve"], example: string) => {
  const known = (JSON.parse(example) ?? {}) as Record<string, unknown>
  return propertiesOf(schema).map(([name, one]) => ({
    name,
    isSent: known[name] !== undefined,
    field: { schema: one, resolve, example: exampleIn(one, resolve, known[name]) },
  }))
}
type Fields = ReturnType<typeof fieldsOf>

/** The object of the example, with other texts of some fields. */
const withFields = (fields: Fields, others: Readonly<Record<string, string>>) =>
  written({
    ...Object.fromEntries(fields.filter(({ isSent }) => isSent).map(({ name, field }) => [name, field.example])),
    ...others,
  })

/** A value whose every text is as long as its schema allows, and whose lists are as long. */
const longest = ({ schema, resolve, example }: Field, unit: string, bytes: number): string => {
  const [first, ...others] = typesOf(schema, resolve)
  const type = [first!, ...others].find(({ type }) => type === "object" || type === "array") ?? first!
  switch (type["type"]) {
    case "string":
      return type["enum"] === undefined ? json(filled(unit, Math.min(most(type, "maxLength"), bytes / 6))) : example
    case "array": {
      const count = Math.min(most(type, "maxItems"), 99_000)
      const items = (type["items"] as Raw | undefined) ?? {}
      const one = exampleIn(items, resolve, (JSON.parse(example) as ReadonlyArray<unknown> | null)?.[0])
      const item = longest({ schema: items, resolve, example: one }, unit, Math.max(bytes / count, 600))
      return list(() => item, bytes, count)
    }
    case "object": {
      const fields = fieldsOf(type, resolve, example)
      if (fields.length === 0) return members(json(filled(unit, 255)), bytes, most(type, "maxProperties"))
      const texts = fields.map(({ name, field }) => [name, longest(field, unit, bytes / fields.length)] as const)
      return withFields(fields, Object.fromEntries(texts))
    }
    default:
      return type["type"] === undefined ? json({ a: filled(unit, bytes / 6) }) : example
  }
}

/** Texts of one field that cost most: long, wide and deep ones that its schema accepts, and beyond. */
const costly = ({ schema, resolve, example }: Field, bytes: number, at = 0): ReadonlyArray<string> =>
  typesOf(schema, resolve).flatMap((type): ReadonlyArray<string> => {
    switch (type["type"]) {
      case "string":
        // The units take turns.
        return [at, at + 5].map((n) => longest({ schema: type, resolve, example }, units[n % units.length]!, bytes))
      case "integer":
      case "number":
        return [String((type["maximum"] as number | undefined) ?? 1e15), "1e308"]
      case "array": {
        const items = (type["items"] as Raw | undefined) ?? {}
        const one = exampleIn(items, resolve, (JSON.parse(example) as ReadonlyArray<unknown> | null)?.[0])
        const count = Math.min(most(type, "maxItems"), 99_000)
        const each = costly({ schema: items, resolve, example: one }, Math.min(bytes / Math.min(count, 100), 4_096), at)
        return [
          ...[one, ...each].map((item) => list(() => item, bytes, count)),
          ...["{}", one].map((item) => list(() => item, bytes, 99_000)),
        ]
      }
      case "object": {
        const fields = fieldsOf(type, resolve, example)
        const rest = type["additionalProperties"] as Raw | boolean | undefined
        const others = typeof rest === "object" ? costly({ schema: rest, resolve, example: "null" }, 400, at) : []
        return [
          ...fields.flatMap(({ name, field }, n) =>
            costly(field, bytes, at + n).map((value) => withFields(fields, { [name]: value })),
          ),
          ...["1", ...others].map((value) => members(value, bytes, 19_900)),
        ]
      }
      case "boolean":
      case "null":
        return []
      default:
        return anything(bytes)
    }
  })

const written = (fields: Readonly<Record<string, string>>) =>
  `{${Object.entries(fields)
    .map(([name, value]) => `${json(name)}:${value}`)
    .join()}}`

/** JSON that a schema accepts: what is known of it, else its example. */
const exampleIn = (raw: Raw, resolve: Described["resolve"], known?: unknown): string => {
  if (known !== undefined) return json(known)
  const { examples, anyOf, type, properties } = resolve(raw) as {
    readonly examples?: ReadonlyArray<unknown>
    readonly anyOf?: ReadonlyArray<Raw>
    readonly type?: string
    readonly properties?: Record<string, Raw>
  }
  if (examples !== undefined) return json(examples[0])
  if (anyOf !== undefined) return exampleIn(anyOf[0]!, resolve)
  if (type !== "object") return type === "array" ? "[]" : "null"
  return written(
    Object.fromEntries(Object.entries(properties ?? {}).map(([name, one]) => [name, exampleIn(one, resolve)])),
  )
}

/** Bodies that cost every operation most, whatever its fields are. */
const bodiesOfAny = (example: string): ReadonlyArray<string> => {
  const inside = example.slice(1, -1)
  const more = [members("1", room, 19_900), written({ [filled("\u0130", 170_000)]: "1" })]
  return [
    ...more.map((others) => `{${[inside, others.slice(1, -1)].filter((part) => part !== "").join()}}`),
    list(() => "{}", room, 99_000),
    "9".repeat(room),
    "[".repeat(room),
    `${example.slice(0, -1)},`.padEnd(room, " "),
    filled('"', room),
  ]
}

/** The costliest bodies of an operation. */
export const bodiesOf = ({ body, resolve }: Described): ReadonlyArray<string> => {
  if (body === undefined) return [list(() => "{}", room, 99_000)]
  const example = json(exampleOf(body, "own"))
  const bytes = room - example.length
  const field = { schema: body.schema, resolve, example }
  return [
    ...new Set([
      example,
      ...units.map((unit) => longest(field, unit, bytes)),
      ...costly(field, bytes),
      ...bodiesOfAny(example),
    ]),
  ]
}

/** The bytes that a request line or a header may have, below Node's 16 KiB for all together. */
const lineRoom = 14_000

/** A long text as a client writes it into a path or a query. */
const encoded = (unit: string) => filled(encodeURIComponent(unit.toWellFormed()), lineRoom).replace(/%.?$/, "")

/** The costliest queries of an operation: long values of each parameter, many of one, many unknown ones. */
export const queriesOf = ({ parameters }: Described): ReadonlyArray<string> => [
  ...parameters
    .filter((one) => one.in === "query")
    .flatMap(({ name }, at) => [
      ...[at, at + 5].map((n) => `${name}=${encoded(units[n % units.length]!)}`),
      filled(`${name}=1&`, lineRoom),
    ]),
  list((n) => `m${n}=1`, lineRoom)
    .slice(1, -1)
    .replaceAll(",", "&"),
]

/** Long segments for the parameters of a path. */
export const segments: ReadonlyArray<string> = [...["a", "😀", "/../"].map(encoded), filled("%2F", lineRoom)]

/** Headers that are dear to read: long, of many parts, and many of them. */
export const headersOfAll: ReadonlyArray<Readonly<Record<string, string>>> = [
  ...[
    ["cookie", "a=b; "],
    ["cookie", "gatehouse_session=%41; "],
    ["cookie", "=;"],
    ["authorization", "Bearer "],
    ["authorization", "Bearer a.b.c "],
    ["authorization", "svc_"],
    ["x-api-key", "a"],
    ["x-api-key", "svc_"],
    ["x-forwarded-for", "1.2.3.4, "],
    ["x-forwarded-for", "::1,"],
    ["x-forwarded-for", "["],
    ["forwarded", "for=1.2.3.4;proto=http, "],
    ["x-request-id", "a"],
    ["x-request-id", "-"],
    ["traceparent", "00-"],
    ["tracestate", "a=b,"],
    ["b3", "0-"],
    ["accept", "a/b;q=0.1, "],
    ["accept-encoding", "gzip;q=0.1, "],
    ["accept-language", "de-DE;q=0.1, "],
    ["if-none-match", '"a", '],
    ["range", "bytes=0-1,"],
    ["idempotency-key", "a"],
    ["last-event-id", "9"],
    ["x-org-id", "a"],
    ["x-csrf-token", "a"],
    ["origin", "https://a.b"],
    ["content-type", "application/json; charset=utf-8; "],
    ["content-type", "application/json;".padEnd(9_000)],
  ].map(([name, unit]) => ({ [name!]: filled(unit!, lineRoom) })),
  { authorization: `Bearer ${filled("a", 4_600)}.${filled("a", 4_600)}.${filled("a", 4_600)}` },
  { authorization: `Basic ${filled("YWFh", lineRoom)}` },
  Object.fromEntries(Array.from({ length: 1_900 }, (_, n) => [`a${n}`, ""])),
]

/** Paths that are read in different places: pages, operations of each interface, and what is none. */
export const paths: ReadonlyArray<readonly [method: string, path: string]> = [
  ...[
    ..."/ /docs /docs.js /docs/portal /openapi.json /metrics /console /console/ /console/orgs /console/none.js".split(
      " ",
    ),
    ..."/console/sign-in /console/sign-in/callback /console/sign-out /portal/embed /portal/element.js".split(" "),
    ..."/healthz /readyz /.well-known/jwks.json /nothing /api/v0/nothing /v1/nothing /api/v0/orgs".split(" "),
    ...["/api/v0/keys/authorize", `/console/sign-in/callback?${filled("code=a&", 6_000)}`],
    ...["/a", "/%2e%2e", "//", "/;a", "/api/v0/orgs/a"].map((unit) => filled(unit, 1_600)),
  ].map((path) => ["GET", path] as const),
  ...["/v1/jobs/create", "/api/v0/keys/validate", "/api/v0/register-deployment", "/api/svc/chat", "/console"].map(
    (path) => ["POST", path] as const,
  ),
  ["OPTIONS", "/api/v0/keys/authorize"],
  ["TRACE", "/v1/jobs/create"],
]
