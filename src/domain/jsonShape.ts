import { SchemaAST } from "effect"
import { isRawNumber } from "./exactJson.ts"

/** What a schema takes: any JSON, an object, a list; `undefined`: one value. */
export type Shape = "any" | ObjectShape | ListShape | undefined
interface ObjectShape {
  readonly fields: ReadonlyMap<string, Shape>
}
interface ListShape {
  readonly item: Shape
  readonly maxItems: number
}

const maxItemsOf = ({ checks }: SchemaAST.AST) =>
  Math.min(
    ...(checks ?? []).map(({ annotations }) => {
      const { id, payload } = (annotations?.["representation"] ?? {}) as {
        id?: string
        payload?: { maxLength: number }
      }
      return id === "effect/schema/isMaxLength" ? payload!.maxLength : Infinity
    }),
  )

/** The shape of a schema of a body, in which all transformations end at JSON. */
export const shapeOf = (schema: SchemaAST.AST): Shape => {
  const ast = SchemaAST.toEncoded(schema)
  switch (ast._tag) {
    case "Unknown":
    case "Declaration":
      return "any"
    case "Arrays":
      return { item: ast.rest[0] && shapeOf(ast.rest[0]), maxItems: maxItemsOf(ast) }
    case "Objects":
      if (ast.indexSignatures.some(({ type }) => shapeOf(type) === "any")) return "any"
      return { fields: new Map(ast.propertySignatures.map(({ name, type }) => [String(name), shapeOf(type)])) }
    case "Union": {
      const shapes = ast.types.map(shapeOf).filter((shape) => shape !== undefined)
      const objects = shapes.filter((shape) => typeof shape === "object" && "fields" in shape)
      return objects.length < 2 ? shapes[0] : { fields: new Map(objects.flatMap(({ fields }) => [...fields])) }
    }
    default:
      return undefined
  }
}

/**
 * JSON as its schema reads it: numbers are raw only where it takes any JSON, and of a list that is too long it reads
 * the first item too many, at which it fails.
 */
export const fit = (value: unknown, shape: Shape): unknown => {
  if (shape === "any") return value
  if (isRawNumber(value)) return Number(value.rawJSON)
  if (shape === undefined || typeof value !== "object" || value === null) return value
  if ("item" in shape) {
    if (!Array.isArray(value)) return value
    return value.slice(0, shape.maxItems + 1).map((item: unknown) => fit(item, shape.item))
  }
  const fields = value as Record<string, unknown>
  for (const [name, of] of shape.fields) if (Object.hasOwn(fields, name)) fields[name] = fit(fields[name], of)
  return value
}
