import type { RE2JS } from "re2js"
import { compareNumbers, isRawNumber, isWholeNumber, numberText, type RawNumber } from "../exactJson.ts"
import { cut } from "../Schemas.ts"

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
/** Instructions of a compiled pattern, and of all patterns of a request that stores schemas. */
const maxProgram = 500
const maxPrograms = 8_000
/**
 * The steps of checking a payload. A step is a keyword at a value, a comparison of two values, or some characters of a
 * text; it takes some 0.1 µs.
 */
const maxSteps = 250_000
const instructionsPerStep = 10
const charactersPerStep = 12

export const isObject = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value) && !isRawNumber(value)
const isList = (value: unknown): value is List => Array.isArray(value)
const isText = (value: unknown): value is string => typeof value === "string"
const isNumber = (value: unknown): value is number | RawNumber => typeof value === "number" || isRawNumber(value)
const has = (object: unknown, name: string) => isObject(object) && Object.hasOwn(object, name)
const namesOf = (value: unknown) => (isObject(value) ? Object.keys(value) : [])
const short = (text: string) => cut(text, 80).toWellFormed()
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

/** The members of a list, an object and a schema. */
const sizeOfAny = (value: unknown) => (isList(value) ? value.length : namesOf(value).length)

/** Instructions that compiling a class of Unicode takes as long as, and letters that are looked for in other cases. */
const instructionsPerClass = 40
const lettersPerInstruction = 40
/** The last letter up to which a range may be wide where case is ignored. */
const wideRange = /(.)-(?:\\x\{?([0-9a-f]+)\}?|\\u\{?([0-9a-f]+)\}?|([^\0-\x7f]))/giu

/** Letters in ranges beyond ASCII; a range that begins with an escape counts from 0. */
const lettersInRanges = (pattern: string) => {
  let letters = 0
  for (const [, from, hex, unicode, letter] of pattern.matchAll(wideRange)) {
    const first = from! > "\x7f" ? from!.codePointAt(0)! : 0
    letters += Math.max(0, (letter?.codePointAt(0) ?? Number.parseInt((hex ?? unicode)!, 16)) - first)
  }
  return letters
}

/**
 * The instructions of a pattern, at least, before it is compiled: compiling takes a time that its length says nothing
 * about. Groups and atoms count as often as they are repeated; a class ends as early as it can.
 */
const sizeOfPattern = (pattern: string): number => {
  const groups = [0]
  let last = 0
  const add = (size: number) => {
    last = size
    groups[groups.length - 1]! += size
  }
  const token =
    /\\[pP](?:\{[^}]{0,60}\}|.)?|\\[\s\S]?|\[(?:\\[\s\S]|[^\]\\])*\]?|\{(\d{1,9})(,?)(\d{0,9})\}|\(\?[a-zA-Z-]*:?|[*+?|^$]|[\s\S]/gu
  for (const [text, least, comma, most] of pattern.matchAll(token)) {
    if (least !== undefined) {
      const times = Math.max(Number(least) + (comma === "," ? 1 : 0), Number(most))
      groups[groups.length - 1]! += last * (times - 1)
      last *= times
    } else if (text.startsWith("(")) groups.push(0)
    else if (text === ")") {
      if (groups.length > 1) add(groups.pop()!)
    } else if (!"*+?|^$".includes(text)) {
      const classes = text.split(/\\[pP]|\[:/).length - 1
      add(1 + text.length / 10 + classes * instructionsPerClass)
    }
  }
  const ignoresCase = /\(\?[a-zA-Z]*i/.test(pattern)
  const letters = ignoresCase ? lettersInRanges(pattern) : 0
  const size = groups.reduce((sum, size) => sum + size)
  return size + letters / lettersPerInstruction
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
  integer: ["a whole number", (value) => isNumber(value) && isWholeNumber(value)],
  boolean: ["true or false", (value) => typeof value === "boolean"],
  object: ["an object", isObject],
  array: ["a list", isList],
  null: ["null", (value) => value === null],
}

/** The characters of a text, without their list. */
const lengthOf = (value: unknown) => {
  if (!isText(value)) return undefined
  let length = 0
  for (const _ of value) length++
  return length
}
const itself = (value: unknown) => (isNumber(value) ? value : undefined)
const sizeOf = (value: unknown) => (isList(value) ? value.length : undefined)
const fieldsOf = (value: unknown) => (isObject(value) ? Object.keys(value).length : undefined)
const atLeast = (size: number | RawNumber, limit: number | RawNumber) => compareNumbers(size, limit) >= 0
const atMost = (size: number | RawNumber, limit: number | RawNumber) => compareNumbers(size, limit) <= 0
const isMultiple = (size: number | RawNumber, of: number | RawNumber) => {
  const quotient = Number(numberText(size)) / Number(numberText(of))
  return Math.abs(quotient - Math.round(quotient)) < 1e-8
}

type Limit = readonly [of: (value: unknown) => number | RawNumber | undefined, holds: typeof atLeast, words: string]
/** Keywords that limit a size: whose, how, and in words. */
const limits: Readonly<Record<string, Limit>> = {
  minLength: [lengthOf, atLeast, "a text of at least # characters"],
  maxLength: [lengthOf, atMost, "a text of at most # characters"],
  minimum: [itself, atLeast, "at least #"],
  maximum: [itself, atMost, "at most #"],
  exclusiveMinimum: [itself, (value, limit) => compareNumbers(value, limit) > 0, "more than #"],
  exclusiveMaximum: [itself, (value, limit) => compareNumbers(value, limit) < 0, "less than #"],
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
  for (let n = 0; n < all.length; n++) {
    const found = check(all[n]!, n)
    if (found !== undefined) return found
  }
  return undefined
}

/** What each schema at a value costs, each text that is compared, and the start of a match; in steps. */
const stepsOfSchema = 2
const stepsOfText = 3
const stepsOfMatch = 10

/** What a keyword at a value costs, without what it passes on; in steps. */
const stepsOfKeyword = (keyword: string, argument: unknown, value: unknown) => {
  if (keyword.endsWith("Length")) return 2 + (isText(value) ? value.length / charactersPerStep : 0)
  if (keyword.endsWith("Properties")) return 3 + 2 * sizeOfAny(value)
  if (keyword === "required" || keyword === "type") return 2 + sizeOfAny(argument)
  return keyword === "properties" ? 3 + 2 * sizeOfAny(argument) : 2
}

/** How many steps the checks of a request may take in all. */
export const makeBudget = () => ({ steps: 2 * maxSteps })

/** Makes the check of a schema: it returns what is wrong with a value, beginning with its name. */
export const makeCheck = (root: JsonSchema) => {
  const patterns = new Map<string, RE2JS>()
  /** The keywords of each schema that check something. */
  const keywords = new Map<Json, ReadonlyArray<string>>()
  const targets = new Map<string, unknown>()
  let steps = 0
  const spend = (cost: number) => (steps -= cost) >= 0

  const keywordsOf = (schema: Json) => {
    const known = keywords.get(schema) ?? Object.keys(schema).filter((keyword) => checking.has(keyword))
    keywords.set(schema, known)
    return known
  }

  const targetOf = (reference: string) => {
    if (!targets.has(reference)) targets.set(reference, atPointer(root, reference))
    return targets.get(reference)
  }

  const matches = (pattern: string, text: string) => {
    const compiled = patterns.get(pattern) ?? compile(pattern)
    patterns.set(pattern, compiled)
    return spend(stepsOfMatch + (text.length * compiled.programSize()) / instructionsPerStep) && compiled.test(text)
  }

  /** Equal values have equal texts. Is not read any more when the steps are used up. */
  const textOf = (value: unknown): string => {
    if (!spend(stepsOfText)) return ""
    if (isList(value)) return `[${value.map(textOf).join(",")}]`
    if (isNumber(value)) return numberText(value)
    if (isText(value)) return spend(value.length / charactersPerStep) ? JSON.stringify(value) : ""
    if (!isObject(value)) return String(value)
    const names = spend(stepsOfText * sizeOfAny(value)) ? namesOf(value).toSorted() : []
    return `{${names.map((name) => `${JSON.stringify(name)}:${textOf(value[name])}`).join(",")}}`
  }

  const at = (schema: unknown, value: unknown): Fault | undefined => {
    if (!spend(stepsOfSchema) || schema === true) return undefined
    if (!isObject(schema)) return fault("absent: the schema has no such field")
    for (const keyword of keywordsOf(schema)) {
      const found = ofKeyword(keyword, schema[keyword], value, schema)
      if (found !== undefined) return found
    }
    return undefined
  }
  const passes = (schema: unknown, value: unknown) => at(schema, value) === undefined

  /** The fault of the value at a name or an index. */
  const below = (name: string | number, schema: unknown, value: unknown) => {
    const found = at(schema, value)
    found?.path.push(String(name))
    return found
  }

  const ofKeyword = (keyword: string, argument: unknown, value: unknown, schema: Json): Fault | undefined => {
    if (!spend(stepsOfKeyword(keyword, argument, value))) return undefined
    if (keyword === "type" && isText(argument) && types[argument]![1](value)) return undefined
    const limit = limits[keyword]
    if (limit !== undefined) {
      const size = limit[0](value)
      const holds = size === undefined || limit[1](size, argument as number)
      return holds ? undefined : fault(limit[2].replace("#", shown(argument)))
    }
    const all = (isList(argument) ? argument : [argument]) as ReadonlyArray<string>
    const [schemas, object, list] = [argument as Json, isObject(value) ? value : {}, isList(value) ? value : []]
    switch (keyword) {
      case "$ref":
        return at(targetOf(argument as string), value)
      case "type":
        return all.some((name) => types[name]![1](value))
          ? undefined
          : fault(short(all.map((name) => types[name]![0]).join(" or ")))
      case "const":
      case "enum": {
        const [text, allowed] = [textOf(value), keyword === "const" ? [argument] : all]
        const isOne = allowed.some((one) => steps >= 0 && textOf(one) === text)
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

  return (value: unknown, name: string, budget = makeBudget()): string | undefined => {
    const before = (steps = Math.min(maxSteps, budget.steps))
    const found = at(root, value)
    budget.steps -= before - steps
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
  ["multipleOf", "a number above 0", (value) => isNumber(value) && Number(numberText(value)) > 0],
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
/** Keywords that check something themselves. */
const checking = new Set([
  ...Object.keys(limits),
  ..."$ref type const enum pattern uniqueItems prefixItems items required properties patternProperties".split(" "),
  ..."additionalProperties allOf anyOf oneOf not if".split(" "),
])

/** How much compiling the patterns of a request may take, in instructions. */
export const makePatternBudget = () => ({ instructions: maxPrograms, counted: new Set<string>() })

/** What is wrong with a schema, beginning with its name. */
export const faultOfSchema = (root: unknown, name: string, budget = makePatternBudget()): string | undefined => {
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
    if (pattern.includes("\\Q")) return `${path} must escape each character: \\Q is not supported`
    if (budget.counted.has(pattern)) return undefined
    budget.counted.add(pattern)
    budget.instructions -= sizeOfPattern(pattern)
    if (budget.instructions < 0) {
      return `${path} must be a smaller pattern: repetitions, classes of Unicode, and ranges where case is ignored make the patterns of this request too large`
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
