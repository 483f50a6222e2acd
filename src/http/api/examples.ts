/** The parts of a JSON schema that examples need. */
interface JsonSchema {
  readonly $ref?: string
  readonly type?: string
  readonly const?: unknown
  readonly enum?: ReadonlyArray<unknown>
  readonly examples?: ReadonlyArray<unknown>
  readonly anyOf?: ReadonlyArray<JsonSchema>
  readonly properties?: Record<string, JsonSchema>
  readonly required?: ReadonlyArray<string>
  readonly items?: JsonSchema
}

const scalars: Record<string, unknown> = { string: "text", integer: 1, number: 1, boolean: true, null: null }

/**
 * Builds an example of a schema from the examples of its fields. It has the required fields, or all fields if none is
 * required.
 */
export const exampleOf = (schema: JsonSchema, schemas: Readonly<Record<string, unknown>>): unknown => {
  if (schema.$ref !== undefined) return exampleOf(schemas[schema.$ref.split("/").at(-1)!] as JsonSchema, schemas)
  if (schema.examples !== undefined) return schema.examples[0]
  if ("const" in schema) return schema.const
  if (schema.enum !== undefined) return schema.enum[0]
  if (schema.anyOf !== undefined) return exampleOf(schema.anyOf[0]!, schemas)
  if (schema.items !== undefined) return [exampleOf(schema.items, schemas)]
  if (schema.type !== "object") return scalars[schema.type ?? "null"]
  const { properties = {}, required = [] } = schema
  const shown = Object.entries(properties).filter(([name]) => required.length === 0 || required.includes(name))
  return Object.fromEntries(shown.map(([name, field]) => [name, exampleOf(field, schemas)]))
}
