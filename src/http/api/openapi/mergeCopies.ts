import { type JsonSchema, type Schemas } from "./JsonSchema.ts"

const ref = "#/components/schemas/"

/** The JSON of a schema without its description and examples. Copies of a schema differ in these only. */
const shape = (schema: JsonSchema) => JSON.stringify({ ...schema, description: undefined, examples: undefined })

/** The original of each copy: `Name_1` is `Name` with another description. */
const originals = (schemas: Schemas) =>
  new Map(
    Object.entries(schemas).flatMap(([name, schema]) => {
      const original = /^(.+?)_\d+$/.exec(name)?.[1]
      const found = original === undefined ? undefined : schemas[original]
      return found !== undefined && shape(found) === shape(schema) ? [[name, original!] as const] : []
    }),
  )

/** Replaces copies of schemas in a document by their originals. The description of a copy stays beside the reference. */
export const mergeCopies = <A extends { readonly components: { readonly schemas: Schemas } }>(document: A): A => {
  const { schemas } = document.components
  const copies = originals(schemas)
  const merge = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(merge)
    if (typeof value !== "object" || value === null) return value
    const merged = Object.fromEntries(Object.entries(value).map(([name, one]) => [name, merge(one)]))
    const name = String(merged["$ref"]).replace(ref, "")
    const original = copies.get(name)
    if (original === undefined) return merged
    const { description } = schemas[name]!
    return { ...merged, $ref: `${ref}${original}`, ...(description === undefined ? {} : { description }) }
  }
  return merge(document) as A
}
