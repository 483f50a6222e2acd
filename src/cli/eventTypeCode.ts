import { type CatalogueType, newestOf } from "../domain/webhooks/EventTypes.ts"
import { atPointer, isObject } from "../domain/webhooks/jsonSchema.ts"

type Json = Readonly<Record<string, unknown>>

interface Field {
  readonly name: string
  readonly type: string
  readonly isRequired: boolean
  readonly text: string
}

/** How a language writes types. Objects have a declaration each, before what uses them. */
interface Syntax {
  readonly names: Readonly<Record<string, string>>
  readonly head: string
  readonly literal: (value: string | number | boolean) => string
  readonly union: (types: ReadonlyArray<string>) => string
  readonly list: (item: string) => string
  readonly record: (value: string) => string
  readonly object: (name: string, fields: ReadonlyArray<Field>) => string
  readonly alias: (name: string, type: string, text: string) => string
  readonly all: (types: ReadonlyArray<readonly [type: string, name: string]>) => string
}

const made = "Made by gatehouse event-types types. Do not change it: make it again."
const scalars = ["string", "number", "integer", "boolean", "null", "any"]
const names = (...words: ReadonlyArray<string>) => Object.fromEntries(scalars.map((name, n) => [name, words[n]!]))
const comment = (text: string, indent = "") => (text === "" ? "" : `${indent}/** ${text.replaceAll("*/", "* /")} */\n`)
const remark = (text: string, indent = "") => (text === "" ? "" : `${indent}# ${text}\n`)

const syntaxes = {
  typescript: {
    names: names("string", "number", "number", "boolean", "null", "unknown"),
    head: `// ${made}\n`,
    literal: (value) => JSON.stringify(value),
    union: (types) => types.join(" | "),
    list: (item) => `Array<${item}>`,
    record: (value) => `{ [name: string]: ${value} }`,
    object: (name, fields) => {
      const line = ({ isRequired, name, text, type }: Field) =>
        `${comment(text, "  ")}  ${JSON.stringify(name)}${isRequired ? "" : "?"}: ${type}\n`
      return `export interface ${name} {\n${fields.map(line).join("")}}\n`
    },
    alias: (name, type, text) => `${comment(text)}export type ${name} = ${type}\n`,
    all: (types) => {
      const lines = types.map(([type, name]) => `  ${JSON.stringify(type)}: ${name}\n`)
      return `/** The data of each type of event. */\nexport interface EventTypes {\n${lines.join("")}}\n`
    },
  },
  python: {
    names: names("str", "float", "int", "bool", "None", "Any"),
    head: `# ${made}\nfrom typing import Any, Literal, NotRequired, TypedDict, Union\n`,
    literal: (value) =>
      typeof value === "boolean"
        ? `Literal[${value ? "True" : "False"}]`
        : Number.isInteger(value) || typeof value === "string"
          ? `Literal[${JSON.stringify(value)}]`
          : "float",
    union: (types) => (types.length === 1 ? types[0]! : `Union[${types.join(", ")}]`),
    list: (item) => `list[${item}]`,
    record: (value) => `dict[str, ${value}]`,
    object: (name, fields) => {
      const line = ({ isRequired, name, text, type }: Field) =>
        `${remark(text, "    ")}    ${JSON.stringify(name)}: ${isRequired ? type : `NotRequired[${type}]`},\n`
      return `${name} = TypedDict("${name}", {\n${fields.map(line).join("")}})\n`
    },
    alias: (name, type, text) => `${remark(text)}${name} = ${type}\n`,
    all: (types) => `EventType = Literal[${types.map(([type]) => JSON.stringify(type)).join(", ") || '""'}]\n`,
  },
} satisfies Record<string, Syntax>
export type Language = keyof typeof syntaxes
export const languages = Object.keys(syntaxes) as ReadonlyArray<Language>

/** Names of the languages and of what is written anyway. */
const taken = "Any Array EventType EventTypes False Literal None NotRequired True TypedDict Union".split(" ")
const pascal = (text: string) =>
  text.replace(/(?:^|[^A-Za-z0-9]+)([A-Za-z0-9]?)/g, (_, letter: string) => letter.toUpperCase())
const lineOf = (schema: unknown) =>
  isObject(schema) ? String(schema["description"] ?? schema["title"] ?? "").replace(/\s+/g, " ") : ""
const isScalar = (value: unknown) => value === null || ["string", "number", "boolean"].includes(typeof value)

/** The code of the types of a catalogue: the data of each event, by its newest schema. */
export const codeOf = (language: Language, catalogue: ReadonlyArray<CatalogueType>): string => {
  const syntax: Syntax = syntaxes[language]
  const used = new Set(taken)
  const declarations: Array<string> = []
  const newName = (wanted: string) => {
    const begin = /^[A-Za-z]/.test(wanted) ? wanted : `Type${wanted}`
    let name = begin
    for (let n = 2; used.has(name); n++) name = `${begin}${n}`
    used.add(name)
    return name
  }

  const declare = (root: unknown, name: string) => {
    const ofReferences = new Map<string, string>()
    const union = (types: ReadonlyArray<string>) => syntax.union([...new Set(types)])
    const literal = (value: unknown) => {
      if (value === null) return syntax.names["null"]!
      return isScalar(value) ? syntax.literal(value as string) : syntax.names["any"]!
    }

    /** A schema with what its references and allOf say in it. */
    const whole = (schema: unknown): Json => {
      if (!isObject(schema)) return {}
      const { $ref, allOf = [], ...own } = schema
      const parts = [
        ...($ref === undefined ? [] : [atPointer(root, $ref as string)]),
        ...(allOf as ReadonlyArray<unknown>),
      ]
      return [...parts.map(whole), own].reduce<Json>((all, part) => {
        const properties = { ...(all["properties"] as Json), ...(part["properties"] as Json) }
        const required = [all, part].flatMap((one) => (one["required"] ?? []) as ReadonlyArray<string>)
        return { ...all, ...part, ...(Object.keys(properties).length > 0 && { properties, required }) }
      }, {})
    }

    const typeOf = (schema: unknown, name: string): string => {
      const any = syntax.names["any"]!
      if (!isObject(schema)) return any
      const { $ref } = schema
      if (typeof $ref === "string" && Object.keys(schema).length === 1) {
        const known = ofReferences.get($ref) ?? typeOf(atPointer(root, $ref), name + pascal($ref.split("/").at(-1)!))
        ofReferences.set($ref, known)
        return known
      }
      const { additionalProperties, items, properties, required = [], type, ...others } = whole(schema)
      if ("const" in others) return literal(others["const"])
      if (Array.isArray(others["enum"])) return union(others["enum"].map(literal))
      if (Array.isArray(type)) return union(type.map((one) => typeOf({ ...whole(schema), type: one as string }, name)))
      if (isObject(properties) && (type ?? "object") === "object") {
        const fields = Object.entries(properties).map(([field, one]) => ({
          name: field,
          type: typeOf(one, name + pascal(field)),
          isRequired: (required as ReadonlyArray<string>).includes(field),
          text: lineOf(one),
        }))
        const declared = newName(name)
        declarations.push(syntax.object(declared, fields))
        return declared
      }
      const some = others["oneOf"] ?? others["anyOf"]
      if (Array.isArray(some)) return union(some.map((one, n) => typeOf(one, `${name}${n + 1}`)))
      if (type === "object") return syntax.record(typeOf(additionalProperties, `${name}Value`))
      return type === "array" ? syntax.list(typeOf(items, `${name}Item`)) : (syntax.names[String(type)] ?? any)
    }
    return typeOf(root, name)
  }

  const all = catalogue.map(({ deprecated, description, name, schemas }) => {
    const type = declare(newestOf(schemas)?.schema, `${pascal(name)}Data`)
    const declared = newName(pascal(name))
    const text = [deprecated ? "@deprecated" : "", (description ?? "").replace(/\s+/g, " ")].filter(Boolean).join(" ")
    declarations.push(syntax.alias(declared, type, text))
    return [name, declared] as const
  })
  return [syntax.head, ...declarations, syntax.all(all)].join("\n")
}
