import { Console, Effect, Schema, Struct } from "effect"
import { Command } from "effect/cli"
import { parse as parseYaml } from "effect/encoding/Yaml"
import { readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import { isRawNumber } from "../domain/exactJson.ts"
import { type CatalogueType, CreateEventType } from "../domain/webhooks/EventTypes.ts"
import { atPointer, isObject } from "../domain/webhooks/jsonSchema.ts"
import { allPages, ask } from "./callOperation.ts"
import { JsonText, readText, tenantGroup, textArgument } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, failure, plain, print, usage } from "./output.ts"

type Json = Readonly<Record<string, unknown>>
type NewType = typeof CreateEventType.Type

const one = { args: { type: "name" } } as const

const update = op("eventTypes.update", one)

/** A schema of an OpenAPI document as a schema of its own: the components that it refers to come along. */
const standalone = (schema: unknown, document: Json) => {
  const defs: Record<string, unknown> = {}
  const moved = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(moved)
    if (!isObject(value)) return value
    const [, component] = /^#\/components\/schemas\/([^/]+)$/.exec(String(value["$ref"])) ?? []
    if (component !== undefined && !(component in defs)) {
      defs[component] = true
      defs[component] = moved(atPointer(document, String(value["$ref"])))
    }
    const $ref = component === undefined ? {} : { $ref: `#/$defs/${component}` }
    return { ...Object.fromEntries(Object.entries(value).map(([key, one]) => [key, moved(one)])), ...$ref }
  }
  const root = moved(schema)
  return Object.keys(defs).length > 0 && isObject(root) ? { ...root, $defs: defs } : root
}

/** The event types of the webhooks of an OpenAPI document: the body of the request is the data. */
const ofOpenApi = (document: Json): ReadonlyArray<Json> =>
  Object.entries((document["webhooks"] ?? {}) as Json).map(([name, item]) => {
    const { post = {} } = item as { readonly post?: Json }
    const media = (atPointer(post, "#/requestBody/content/application~1json") ?? {}) as Json
    const [first] = Object.values((media["examples"] ?? {}) as Record<string, Json>)
    const example = media["example"] ?? first?.["value"]
    const version = atPointer(document, "#/info/version") ?? 1
    const description = post["description"] ?? post["summary"]
    const group = atPointer(post, "#/tags/0")
    const schema = "schema" in media && standalone(media["schema"], document)
    return {
      name,
      ...(schema !== false && { schemas: { [isRawNumber(version) ? version.rawJSON : String(version)]: schema } }),
      ...(example !== undefined && { example }),
      ...(description !== undefined && { description }),
      ...(group !== undefined && { group }),
      ...(post["deprecated"] !== undefined && { deprecated: post["deprecated"] }),
    }
  })

/** An event type with its file. */
interface InFile {
  readonly file: string
  readonly type: NewType
}

const decodeJson = Schema.decodeSync(JsonText)

/** The event types in a file: one, a list of them, or an OpenAPI document. */
const readFile = (file: string) =>
  Effect.gen(function* () {
    const document = yield* Effect.try({
      try: (): unknown => {
        const text = readText(file)
        return file.endsWith(".json") ? decodeJson(text) : parseYaml(text)
      },
      catch: (cause) =>
        usage(plain(`${file} cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`)),
    })
    const found = isObject(document) && "openapi" in document ? ofOpenApi(document) : [document].flat()
    for (const one of found) {
      if (!isObject(one) || typeof one["name"] !== "string") {
        return yield* usage(
          `${plain(file)} must have an event type with a name, a list of them, or an OpenAPI document`,
        )
      }
      const other = Object.keys(one).find((field) => !Object.hasOwn(CreateEventType.fields, field))
      if (other !== undefined) return yield* usage(plain(`${file}: ${other} is not a field of an event type`))
    }
    return (found as ReadonlyArray<NewType>).map((type): InFile => ({ file, type }))
  })

const readAll = Effect.fnUntraced(function* (path: string) {
  const files = yield* Effect.try({
    try: () =>
      statSync(path).isDirectory()
        ? readdirSync(path, { recursive: true, encoding: "utf8" })
            .filter((file) => /\.(json|ya?ml)$/.test(file))
            .toSorted()
            .map((file) => join(path, file))
        : [path],
    catch: () => usage(`${path} cannot be read: name a file, or a folder with files`),
  })
  return (yield* Effect.forEach(files, readFile)).flat()
})

const isSame = (a: unknown, b: unknown) => JSON.stringify(a) === JSON.stringify(b)
/** What differs from the catalogue; versions that are only there stay. */
const differencesOf = ({ schemas = {}, ...type }: NewType, stored: CatalogueType) => {
  const versions = Object.entries(schemas).filter(([version, schema]) => !isSame(schema, stored.schemas[version]))
  const fields = Object.entries(type).filter(([field, value]) => !isSame(value, stored[field as keyof CatalogueType]))
  return { ...Object.fromEntries(fields), ...(versions.length > 0 && { schemas: Object.fromEntries(versions) }) }
}

const catalogue = allPages((cursor) =>
  Effect.map(
    ask((gatehouse) => gatehouse.eventTypes.list({ payload: { limit: 100, ...(cursor === "" ? {} : { cursor }) } })),
    ({ body: { event_types, next_cursor } }) => ({ items: event_types, next: next_cursor }),
  ),
)

const push = Command.make(
  "push",
  { path: textArgument("path", "A folder of JSON and YAML files, or one file") },
  Effect.fnUntraced(function* ({ path }) {
    const types = yield* readAll(path)
    const stored = new Map((yield* catalogue).map((type) => [type.name, type]))
    let [created, updated] = [0, 0]
    for (const { file, type } of types) {
      const before = stored.get(type.name)
      const others = Object.keys(before?.schemas ?? {}).filter((version) => !(version in (type.schemas ?? {})))
      if (others.length > 0)
        yield* Console.error(
          `${plain(type.name)} has other versions in the catalogue, which stay: ${plain(others.join(", "))}`,
        )
      const differences = before === undefined ? type : differencesOf(type, before)
      if (Object.keys(differences).length === 0) continue
      const payload = { ...differences, name: type.name }
      yield* ask((gatehouse) =>
        before === undefined ? gatehouse.eventTypes.create({ payload }) : gatehouse.eventTypes.update({ payload }),
      ).pipe(Effect.mapError(({ message }) => failure(`${plain(file)}: ${plain(type.name)}: ${message}`)))
      if (before === undefined) created++
      else updated++
    }
    const same = types.length - created - updated
    yield* print(JSON.stringify({ created, updated, same }), {
      out: "",
      note: `${created} created, ${updated} changed, ${same} as they were.`,
    })
  }),
).pipe(
  Command.withDescription(
    "Put the event types of files, or of the webhooks of an OpenAPI document, into the catalogue",
  ),
  Command.withExamples([{ command: "gatehouse event-types push events/" }]),
)

export const eventTypes = tenantGroup("event-types", "The catalogue of event types", [
  push,
  op("eventTypes.list", {
    show: ({ event_types }) =>
      columns(event_types, {
        TYPE: "name",
        GROUP: "group",
        VERSIONS: ({ schemas }) => Object.keys(schemas).join(", "),
        DEPRECATED: ({ deprecated }) => (deprecated ? "yes" : ""),
        DESCRIPTION: "description",
      }),
  }),
  op("eventTypes.get", {
    ...one,
    about: "Print an event type with its schemas, as a file for push",
    show: (type) => ({ out: JSON.stringify(Struct.omit(type, ["created_at", "updated_at"]), null, 2) }),
  }),
  op("eventTypes.create", one),
  update,
  op("eventTypes.delete", one),
])
