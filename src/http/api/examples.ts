import { type JsonSchema, resolved, type Schemas } from "./openapi/OpenApiSchema.ts"

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
