/** The parts of a JSON Schema (2020-12) that the document uses. */
export interface JsonSchema {
  readonly $ref?: string
  readonly type?: string | ReadonlyArray<string>
  readonly format?: string
  readonly pattern?: string
  readonly const?: unknown
  readonly enum?: ReadonlyArray<unknown>
  /** Known values of a string that may have others later. */
  readonly "x-extensible-enum"?: ReadonlyArray<unknown>
  readonly default?: unknown
  readonly minimum?: number
  readonly maximum?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly minProperties?: number
  readonly description?: string
  readonly examples?: ReadonlyArray<unknown>
  readonly anyOf?: ReadonlyArray<JsonSchema>
  readonly oneOf?: ReadonlyArray<JsonSchema>
  readonly allOf?: ReadonlyArray<JsonSchema>
  readonly properties?: Readonly<Record<string, JsonSchema>>
  readonly required?: ReadonlyArray<string>
  readonly items?: JsonSchema
  readonly contentMediaType?: string
  readonly contentSchema?: JsonSchema
  readonly if?: JsonSchema
  readonly else?: JsonSchema
  readonly additionalProperties?: boolean | JsonSchema
}
export type Schemas = Readonly<Record<string, JsonSchema>>

interface Media {
  readonly schema: JsonSchema
  readonly example?: unknown
}
type Content = Readonly<Record<string, Media>>
export interface Parameter {
  readonly name: string
  readonly in: string
  readonly required?: boolean
  readonly description?: string
  readonly schema: JsonSchema
}
export interface Response {
  readonly $ref?: string
  readonly description?: string
  readonly headers?: Readonly<Record<string, { readonly schema: JsonSchema; readonly required?: boolean }>>
  readonly content?: Content
}
export interface Operation {
  readonly operationId: string
  readonly summary?: string
  readonly description?: string
  readonly parameters: ReadonlyArray<Parameter>
  readonly requestBody?: { readonly required?: boolean; readonly content: Content }
  readonly responses: Readonly<Record<string, Response>>
}

export const schemaRef = (name: string): JsonSchema => ({ $ref: `#/components/schemas/${name}` })

/** The name of a schema that a reference leads to. */
export const refName = ({ $ref }: JsonSchema): string | undefined => $ref?.split("/").at(-1)

/** The schema itself, where a reference leads. */
export const resolved = (schema: JsonSchema, schemas: Schemas): JsonSchema => {
  const name = refName(schema)
  return name === undefined ? schema : resolved(schemas[name] ?? {}, schemas)
}

/** Changes the values of an object. */
export const mapValues = <A, B>(record: Readonly<Record<string, A>>, change: (value: A, name: string) => B) =>
  Object.fromEntries(Object.entries(record).map(([name, value]) => [name, change(value, name)]))

/** Adds the names of all schemas that a value refers to, directly or through others. */
export const collectRefs = (value: unknown, schemas: Schemas, found: Set<string>): Set<string> => {
  if (typeof value !== "object" || value === null) return found
  for (const [name, inner] of Object.entries(value)) {
    const target = name === "$ref" && typeof inner === "string" ? schemaName(inner) : undefined
    if (target === undefined) collectRefs(inner, schemas, found)
    else if (!found.has(target)) collectRefs(schemas[target], schemas, found.add(target))
  }
  return found
}

const schemaName = (ref: string) => /^#\/components\/schemas\/(.+)$/.exec(ref)?.[1]

const scalars: Record<string, unknown> = { string: "text", integer: 1, number: 1, boolean: true, null: null }

/**
 * Builds an example of a schema from the examples of its fields. It has the required fields, or all fields if none is
 * required.
 */
export const exampleOf = (raw: JsonSchema, schemas: Schemas): unknown => {
  const schema = resolved(raw, schemas)
  if (schema.examples !== undefined) return schema.examples[0]
  if ("const" in schema) return schema.const
  if (schema.enum !== undefined) return schema.enum[0]
  if (schema.anyOf !== undefined) return exampleOf(schema.anyOf[0]!, schemas)
  if (schema.items !== undefined) return [exampleOf(schema.items, schemas)]
  const type = [schema.type ?? "null"].flat()[0]!
  if (type !== "object") return type === "integer" ? Math.max(1, schema.minimum ?? 1) : scalars[type]
  const { properties = {}, required = [] } = schema
  const shown = Object.entries(properties).filter(([name]) => required.length === 0 || required.includes(name))
  return Object.fromEntries(shown.map(([name, field]) => [name, exampleOf(field, schemas)]))
}
