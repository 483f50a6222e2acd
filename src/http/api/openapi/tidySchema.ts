import { fieldText } from "./fieldTexts.ts"
import { type JsonSchema, mapValues } from "./JsonSchema.ts"

/** Where a schema stands. Answers may get more fields and more values with any version; requests are exact. */
export type Role = "request" | "answer"

const isNull = ({ type }: JsonSchema) => type === "null"
const isPlain = ({ $ref, type }: JsonSchema) => $ref === undefined && typeof type === "string"

/** Joins `allOf` members that only add rules to the schema itself. */
const withoutAllOf = (schema: JsonSchema): JsonSchema => {
  const { allOf, ...rest } = schema
  if (allOf === undefined || allOf.some(({ $ref, anyOf }) => $ref !== undefined || anyOf !== undefined)) return schema
  return allOf.reduce((all, one) => ({ ...one, ...all }), rest)
}

/** `anyOf` of a plain type and null as `type: [plain, "null"]`. */
const withoutAnyOfNull = (schema: JsonSchema): JsonSchema => {
  const { anyOf, ...rest } = schema
  const [value, ...others] = anyOf?.filter((one) => !isNull(one)) ?? []
  if (anyOf === undefined || value === undefined || others.length > 0) return schema
  const plain = withoutAllOf(value)
  if (anyOf.length !== 2 || !isPlain(plain) || plain.type === "object") return schema
  const withNull = plain.enum === undefined ? {} : { enum: [...plain.enum, null] }
  return { ...plain, ...rest, type: [plain.type as string, "null"], ...withNull }
}

/** A boolean that has one value in this answer is a boolean: generators make classes of `enum: [true]`. */
const plainBoolean = (schema: JsonSchema): JsonSchema => {
  const { const: only, enum: values, ...rest } = schema
  const all = values ?? [only]
  return all.every((value) => typeof value === "boolean") ? { ...rest, type: "boolean" } : schema
}

/** A string with one value, which `const` says to some generators only. */
const constAsEnum = (schema: JsonSchema): JsonSchema => {
  const { const: only, ...rest } = schema
  return typeof only === "string" ? { ...rest, type: "string", enum: [only] } : schema
}

/** In answers: a string with known values, which may get more. */
const openEnum = (schema: JsonSchema): JsonSchema => {
  const { enum: values, ...rest } = schema
  if (values === undefined) return schema
  const known = values.filter((value) => value !== null)
  const sentence = `Known values: ${known.join(", ")}. Later versions may have more.`
  const description = [rest.description, sentence].filter((text) => text !== undefined).join(" ")
  return { ...rest, description, "x-extensible-enum": known, examples: rest.examples ?? [known[0]] }
}

const largestInt32 = 2 ** 31 - 1
/** The bounds of exact JSON numbers, which are no rule of a field. */
const isRule = (bound: number | undefined) => bound !== undefined && Math.abs(bound) !== Number.MAX_SAFE_INTEGER

/** An integer with its format. One without a rule is a count: 0 or more. */
const boundedInteger = (schema: JsonSchema): JsonSchema => {
  if (![schema.type].flat().includes("integer")) return schema
  const { maximum, minimum, ...rest } = schema
  const from = isRule(minimum) ? minimum! : 0
  const to = isRule(maximum) ? { maximum: maximum! } : {}
  const format = (to.maximum ?? Infinity) <= largestInt32 && from >= -largestInt32 ? "int32" : "int64"
  return { ...rest, format, minimum: from, ...to }
}

const tidyObject = (schema: JsonSchema, role: Role): JsonSchema => {
  const { additionalProperties, properties, required, ...rest } = schema
  const open = additionalProperties === undefined || (role === "answer" && additionalProperties === false)
  const more = typeof additionalProperties === "object" ? tidySchema(additionalProperties, role) : additionalProperties
  // `_tag` distinguishes errors inside the service; it is never sent.
  const { _tag: _, ...fields } = properties ?? {}
  const needed = required?.filter((name) => name in fields)
  return {
    ...rest,
    ...(properties === undefined
      ? {}
      : { properties: mapValues(fields, (field, name) => fieldText(name, tidySchema(field, role))) }),
    ...(needed === undefined || needed.length === 0 ? {} : { required: needed }),
    ...(open ? {} : { additionalProperties: more }),
  } as JsonSchema
}

/** In lists: the description of the list says whose ids they are. */
const withoutIdText = ({ description, ...schema }: JsonSchema): JsonSchema =>
  description === undefined || description === "A ULID." ? schema : { description, ...schema }

/** A schema in the form that most generators of clients understand. */
export const tidySchema = (schema: JsonSchema, role: Role): JsonSchema => {
  const plain = [withoutAllOf, withoutAnyOfNull, plainBoolean, constAsEnum].reduce((one, step) => step(one), schema)
  const sized = boundedInteger(role === "answer" ? openEnum(plain) : plain)
  const { anyOf, items, oneOf } = sized
  return tidyObject(
    {
      ...sized,
      ...(anyOf === undefined ? {} : { anyOf: anyOf.map((one) => tidySchema(one, role)) }),
      ...(oneOf === undefined ? {} : { oneOf: oneOf.map((one) => tidySchema(one, role)) }),
      ...(items === undefined ? {} : { items: withoutIdText(tidySchema(items, role)) }),
    },
    role,
  )
}
