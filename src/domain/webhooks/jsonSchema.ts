import type { RE2JS } from "re2js"

// JSON Schema 2020-12, as far as schemas of tenants may use it, interpreted in bounded time (ADR 52).

/** A JSON Schema in which `faultOfSchema` has found nothing wrong. */
export type JsonSchema = boolean | Json
type Json = Readonly<Record<string, unknown>>
type List = ReadonlyArray<unknown>

const dialect = "https://json-schema.org/draft/2020-12/schema"
/** How deep schemas are in each other, references included; no check goes deeper into a payload. */
const maxLevels = 32
/** Schemas in a schema, as often as references reach them. */
const maxSchemas = 5_000
const maxPatterns = 20
const maxPatternLength = 200
/** Instructions of a compiled pattern. */
const maxProgram = 500
/** What a payload may cost: a schema at a value is a step, and so is some work on texts. */
const maxSteps = 100_000
const instructionsPerStep = 50
const charactersPerStep = 25

export const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value)
const isList = (value: unknown): value is List => Array.isArray(value)
const isText = (value: unknown): value is string => typeof value === "string"
const isNumber = (value: unknown): value is number => typeof value === "number"
const has = (object: unknown, name: string) => isObject(object) && Object.hasOwn(object, name)
const namesOf = (value: unknown) => (isObject(value) ? Object.keys(value) : [])
const short = (text: string) => text.slice(0, 80).toWellFormed()
const shown = (value: unknown) => short(JSON.stringify(value) ?? "nothing")

/** The value at a JSON pointer such as `#/$defs/address`; `undefined`: there is none. */
export const atPointer = (root: unknown, reference: string): unknown =>
  /^#(\/|$)/.test(reference)
    ? reference
        .split("/")
        .slice(1)
        .map((token) => token.replaceAll("~1", "/").replaceAll("~0", "~"))
        .reduce(
          (at, token) => (at instanceof Object && Object.hasOwn(at, token) ? (at as Json)[token] : undefined),
          root,
        )
    : undefined

/** How much work a value is for a keyword, beside what it passes on. */
const weightOf = (value: unknown) =>
  isObject(value) ? 10 * Object.keys(value).length : ((value as List | null)?.length ?? 0)

/** Equal values have equal texts. */
const canonical = (value: unknown): string => {
  if (isList(value)) return `[${value.map(canonical).join(",")}]`
  const fields = namesOf(value)
    .toSorted()
    .map((name) => `${JSON.stringify(name)}:${canonical((value as Json)[name])}`)
  return isObject(value) ? `{${fields.join(",")}}` : JSON.stringify(value)
}

/** Loaded with the first pattern: the definitions of the API are published without it. */
let engine: typeof RE2JS | undefined

/** Compiles a pattern to an automaton, which reads a text once. Throws for a pattern that has none. */
const compile = (pattern: string) => {
  const { createRequire } = process.getBuiltinModule("node:module")
  engine ??= (createRequire(import.meta.url)("re2js") as { readonly RE2JS: typeof RE2JS }).RE2JS
  return engine.compile(engine.translateRegExp(pattern))
}

const types: Readonly<Record<string, readonly [words: string, is: (value: unknown) => boolean]>> = {
  string: ["a string", isText],
  number: ["a number", isNumber],
  integer: ["a whole number", Number.isInteger],
  boolean: ["true or false", (value) => typeof value === "boolean"],
  object: ["an object", isObject],
  array: ["a list", isList],
  null: ["null", (value) => value === null],
}

const lengthOf = (value: unknown) => (isText(value) ? [...value].length : undefined)
const itself = (value: unknown) => (isNumber(value) ? value : undefined)
const sizeOf = (value: unknown) => (isList(value) ? value.length : undefined)
const fieldsOf = (value: unknown) => (isObject(value) ? Object.keys(value).length : undefined)
const atLeast = (size: number, limit: number) => size >= limit
const atMost = (size: number, limit: number) => size <= limit
const isMultiple = (size: number, of: number) => Math.abs(size / of - Math.round(size / of)) < 1e-8

type Limit = readonly [of: (value: unknown) => number | undefined, holds: typeof atLeast, words: string]
/** Keywords that limit a size: whose, how, and in words. */
const limits: Readonly<Record<string, Limit>> = {
  minLength: [lengthOf, atLeast, "a text of at least # characters"],
  maxLength: [lengthOf, atMost, "a text of at most # characters"],
  minimum: [itself, atLeast, "at least #"],
  maximum: [itself, atMost, "at most #"],
  exclusiveMinimum: [itself, (value, limit) => value > limit, "more than #"],
  exclusiveMaximum: [itself, (value, limit) => value < limit, "less than #"],
  multipleOf: [itself, isMultiple, "a multiple of #"],
  minItems: [sizeOf, atLeast, "a list of at least # values"],
  maxItems: [sizeOf, atMost, "a list of at most # values"],
  minProperties: [fieldsOf, atLeast, "an object of at least # fields"],
  maxProperties: [fieldsOf, atMost, "an object of at most # fields"],
}

/** What is wrong, and where: the names on the way, the last one first. */
interface Fault {
  readonly must: string
  readonly path: Array<string>
}
const fault = (must: string, ...path: ReadonlyArray<string>): Fault => ({ must: `must be ${must}`, path: [...path] })

/** The first fault of several. */
const first = <A>(all: ReadonlyArray<A>, check: (one: A, n: number) => Fault | undefined) => {
  for (const [n, one] of all.entries()) {
    const found = check(one, n)
    if (found !== undefined) return found
  }
  return undefined
}

/** Makes the check of a schema: it returns what is wrong with a value, beginning with its name. */
export const makeCheck = (root: JsonSchema) => {
  const patterns = new Map<string, RE2JS>()
  let steps = 0
  const spend = (cost: number) => (steps -= cost) >= 0

  const matches = (pattern: string, text: string) => {
    const compiled = patterns.get(pattern) ?? compile(pattern)
    patterns.set(pattern, compiled)
    return spend((text.length * compiled.programSize()) / instructionsPerStep) && compiled.test(text)
  }

  const textOf = (value: unknown) => {
    const text = canonical(value)
    return spend(text.length / charactersPerStep) ? text : ""
  }

  const at = (schema: unknown, value: unknown): Fault | undefined => {
    if (!spend(1) || schema === true) return undefined
    if (!isObject(schema)) return fault("absent: the schema has no such field")
    return first(Object.keys(schema), (keyword) => ofKeyword(keyword, schema[keyword], value, schema))
  }
  const passes = (schema: unknown, value: unknown) => at(schema, value) === undefined

  /** The fault of the value at a name or an index. */
  const below = (name: string | number, schema: unknown, value: unknown) => {
    const found = at(schema, value)
    found?.path.push(String(name))
    return found
  }

  const ofKeyword = (keyword: string, argument: unknown, value: unknown, schema: Json): Fault | undefined => {
    if (!spend(Math.trunc((weightOf(value) + weightOf(argument)) / charactersPerStep))) return undefined
    const limit = Object.hasOwn(limits, keyword) ? limits[keyword] : undefined
    if (limit !== undefined) {
      const size = limit[0](value)
      const holds = size === undefined || limit[1](size, argument as number)
      return holds ? undefined : fault(limit[2].replace("#", String(argument)))
    }
    const all = (isList(argument) ? argument : [argument]) as ReadonlyArray<string>
    const [schemas, object, list] = [argument as Json, isObject(value) ? value : {}, isList(value) ? value : []]
    switch (keyword) {
      case "$ref":
        return at(atPointer(root, argument as string), value)
      case "type":
        return all.some((name) => types[name]![1](value))
          ? undefined
          : fault(all.map((name) => types[name]![0]).join(" or "))
      case "const":
      case "enum": {
        const [text, allowed] = [textOf(value), keyword === "const" ? [argument] : all]
        const isOne = allowed.some((one) => textOf(one) === text)
        return isOne
          ? undefined
          : fault(`${allowed.length > 1 ? "one of " : ""}${short(allowed.map(shown).join(", "))}`)
      }
      case "pattern":
        return !isText(value) || matches(all[0]!, value) ? undefined : fault(`a text that matches ${all[0]!}`)
      case "uniqueItems": {
        const isUnique = argument !== true || new Set(list.map(textOf)).size === list.length
        return isUnique ? undefined : fault("a list of different values")
      }
      case "prefixItems":
        return first(list.slice(0, all.length), (item, n) => below(n, all[n], item))
      case "items": {
        const from = sizeOf(schema["prefixItems"]) ?? 0
        return first(list.slice(from), (item, n) => below(from + n, argument, item))
      }
      case "required":
        return first(all, (name) => (!isObject(value) || has(value, name) ? undefined : fault("present", name)))
      case "properties":
        return first(Object.keys(schemas), (name) =>
          has(value, name) ? below(name, schemas[name], object[name]) : undefined,
        )
      case "patternProperties":
        return first(Object.keys(schemas), (pattern) =>
          first(Object.keys(object), (name) =>
            matches(pattern, name) ? below(name, schemas[pattern], object[name]) : undefined,
          ),
        )
      case "additionalProperties": {
        const others = namesOf(schema["patternProperties"])
        const isOther = (name: string) => !has(schema["properties"], name) && !others.some((one) => matches(one, name))
        return first(Object.keys(object).filter(isOther), (name) => below(name, argument, object[name]))
      }
      case "allOf":
        return first(all, (one) => at(one, value))
      case "anyOf":
        return all.some((one) => passes(one, value)) ? undefined : fault("valid for one of anyOf")
      case "oneOf":
        return all.filter((one) => passes(one, value)).length === 1 ? undefined : fault("valid for one of oneOf alone")
      case "not":
        return passes(argument, value) ? fault("other than what not forbids") : undefined
      case "if":
        return at(schema[passes(argument, value) ? "then" : "else"] ?? true, value)
      default:
        return undefined
    }
  }

  return (value: unknown, name: string): string | undefined => {
    steps = maxSteps
    const found = at(root, value)
    if (steps < 0) return `${name} must be smaller: its check against the schema takes too long`
    return found && `${[name, ...found.path.toReversed().map(short)].join(".")} ${found.must}`
  }
}

const isNames = (value: unknown) => isList(value) && value.every(isText)
const isType = (value: unknown) => isText(value) && Object.hasOwn(types, value)
const isCount = (value: unknown) => Number.isSafeInteger(value) && Number(value) >= 0

/** What keywords without schemas in them take. */
const forms: ReadonlyArray<readonly [keywords: string, words: string, is: (value: unknown) => boolean]> = [
  ["minLength maxLength minItems maxItems minProperties maxProperties", "a whole number from 0", isCount],
  ["minimum maximum exclusiveMinimum exclusiveMaximum", "a number", isNumber],
  ["multipleOf", "a number above 0", (value) => isNumber(value) && value > 0],
  ["uniqueItems", "true or false", types["boolean"]![1]],
  ["required", "a list of names", isNames],
  ["enum", "a list of at least 1 value", (value) => isList(value) && value.length > 0],
  [
    "type",
    `one of ${Object.keys(types).join(", ")}, or a list of these`,
    (value) => isType(value) || (isList(value) && value.length > 0 && value.every(isType)),
  ],
  ["$schema", `${dialect}, or absent`, (value) => value === dialect],
  [
    "$id $comment title description default examples example deprecated readOnly writeOnly format const contentSchema " +
      "contentEncoding contentMediaType externalDocs xml discriminator",
    "a value",
    () => true,
  ],
]
const formOf = new Map(forms.flatMap(([keywords, ...form]) => keywords.split(" ").map((keyword) => [keyword, form])))
const ofSchema = new Set(["items", "additionalProperties", "not", "if", "then", "else"])
const ofSchemas = new Set(["allOf", "anyOf", "oneOf", "prefixItems"])
const ofNames = new Set(["properties", "patternProperties", "$defs", "definitions"])

/** What is wrong with a schema, beginning with its name. */
export const faultOfSchema = (root: unknown, name: string): string | undefined => {
  let [patterns, schemas] = [0, 0]
  /** The deepest level at which a schema was checked. */
  const checked = new Map<unknown, number>()
  const open = new Set<unknown>()

  const faultOfPattern = (pattern: unknown, path: string) => {
    patterns++
    if (patterns > maxPatterns) return `${path} is one pattern too many: a schema has at most ${maxPatterns}`
    if (!isText(pattern) || pattern.length > maxPatternLength) {
      return `${path} must be a pattern of at most ${maxPatternLength} characters`
    }
    try {
      return compile(pattern).programSize() <= maxProgram
        ? undefined
        : `${path} must be a smaller pattern: its repetitions make it too large`
    } catch {
      return `${path} must be a regular expression of RE2: without look-around and back-references`
    }
  }

  const faultOfKeyword = (schema: Json, keyword: string, path: string, level: number): string | undefined => {
    const value = schema[keyword]
    const form = formOf.get(keyword)
    if (form !== undefined) return form[1](value) ? undefined : `${path} must be ${form[0]}`
    if (ofSchema.has(keyword)) return faultOf(value, path, level)
    if (ofSchemas.has(keyword)) {
      if (!isList(value) || value.length === 0) return `${path} must be a list of at least 1 schema`
      return value.map((one, n) => faultOf(one, `${path}.${n}`, level)).find((found) => found !== undefined)
    }
    if (ofNames.has(keyword)) {
      if (!isObject(value)) return `${path} must be an object of schemas`
      return Object.keys(value)
        .map((key) => {
          const wrong = keyword === "patternProperties" ? faultOfPattern(key, `${path}.${short(key)}`) : undefined
          return wrong ?? faultOf(value[key], `${path}.${short(key)}`, level)
        })
        .find((found) => found !== undefined)
    }
    if (keyword === "pattern") return faultOfPattern(value, path)
    if (keyword !== "$ref") return keyword.startsWith("x-") ? undefined : `${path} is no keyword that Gatehouse checks`
    const target = isText(value) ? atPointer(root, value) : undefined
    if (target === undefined) {
      return `${path} must be a place in this schema, such as #/$defs/address, not ${shown(value)}`
    }
    return open.has(target) ? `${path} leads back to itself: a schema must not recur` : faultOf(target, path, level)
  }

  const faultOf = (schema: unknown, path: string, level: number): string | undefined => {
    if (typeof schema === "boolean" || (checked.get(schema) ?? -1) >= level) return undefined
    if (!isObject(schema)) return `${path} must be a JSON Schema: an object, true or false`
    if (level > maxLevels) return `${path} is too deep: schemas are at most ${maxLevels} levels in each other`
    if (++schemas > maxSchemas) return `${path} is too much: a schema has at most ${maxSchemas} schemas in it`
    open.add(schema)
    for (const keyword of Object.keys(schema)) {
      const found = faultOfKeyword(schema, keyword, `${path}.${short(keyword)}`, level + 1)
      if (found !== undefined) return found
    }
    open.delete(schema)
    checked.set(schema, level)
    return undefined
  }

  return faultOf(root, name, 0)
}
