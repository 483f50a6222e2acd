/** The parts of a JSON schema that become types. */
interface Schema {
  readonly $ref?: string
  readonly type?: string | ReadonlyArray<string>
  readonly const?: unknown
  readonly enum?: ReadonlyArray<unknown>
  readonly "x-extensible-enum"?: ReadonlyArray<string>
  readonly anyOf?: ReadonlyArray<Schema>
  readonly oneOf?: ReadonlyArray<Schema>
  readonly allOf?: ReadonlyArray<Schema>
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: ReadonlyArray<string>
  readonly items?: Schema
  readonly additionalProperties?: boolean | Schema
  readonly description?: string
  readonly contentSchema?: Schema
  readonly else?: Schema
}
type Content = Readonly<Record<string, { readonly schema: Schema }>>
interface Operation {
  readonly operationId: string
  readonly summary?: string
  readonly parameters: ReadonlyArray<{
    readonly name: string
    readonly in: string
    readonly required?: boolean
    readonly schema: Schema
  }>
  readonly requestBody?: { readonly required?: boolean; readonly content: Content }
  readonly responses: Readonly<Record<string, { readonly content?: Content }>>
}
/** An OpenAPI document. */
export interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
}

const nameOf = (ref: string) => ref.split("/").at(-1)!
const literals = (values: ReadonlyArray<unknown>) => values.map((value) => JSON.stringify(value)).join(" | ")
const comment = (text: string | undefined) => (text === undefined ? "" : `/** ${text.replaceAll("*/", "* /")} */\n`)

const scalars: Readonly<Record<string, string>> = {
  string: "string",
  integer: "number",
  number: "number",
  boolean: "boolean",
  null: "null",
}

const objectType = ({ additionalProperties, properties, required = [] }: Schema): string => {
  if (properties === undefined) {
    return `Readonly<Record<string, ${typeof additionalProperties === "object" ? typeOf(additionalProperties) : "unknown"}>>`
  }
  const fields = Object.entries(properties).map(
    ([name, field]) =>
      `${comment(field.description)}readonly ${JSON.stringify(name)}${required.includes(name) ? "" : "?"}: ${typeOf(field)}`,
  )
  return `{\n${fields.join("\n")}\n}`
}

/** The TypeScript type of a schema. */
const typeOf = (schema: Schema): string => {
  if (schema.$ref !== undefined) return nameOf(schema.$ref)
  if ("const" in schema) return JSON.stringify(schema.const)
  if (schema.enum !== undefined) return literals(schema.enum)
  const union = schema.anyOf ?? schema.oneOf
  if (union !== undefined) return union.map(typeOf).join(" | ")
  if (schema.allOf !== undefined) return schema.allOf.map(typeOf).join(" & ")
  const types = [schema.type ?? "unknown"].flat()
  return types.map((type) => plainType(type, schema)).join(" | ")
}

const plainType = (type: string, schema: Schema): string => {
  if (type === "object") return objectType(schema)
  if (type === "array") return `ReadonlyArray<${typeOf(schema.items ?? {})}>`
  const known = schema["x-extensible-enum"]
  if (type === "string" && known !== undefined) return `${literals(known)} | (string & {})`
  return scalars[type] ?? "unknown"
}

/** The type of a call's argument, and whether it may be left out. */
const argumentOf = ({ parameters, requestBody }: Operation, { components }: Document) => {
  const own = parameters.filter((one) => one.in === "path" || one.in === "query")
  const body = requestBody?.content["application/json"]?.schema
  const resolved = body?.$ref === undefined ? body : components.schemas[nameOf(body.$ref)]
  const twice = own.find(({ name }) => resolved?.properties?.[name] !== undefined)
  if (twice !== undefined) throw new Error(`${twice.name} is a parameter and a field of the body`)
  const properties = Object.fromEntries(own.map(({ name, schema }) => [name, schema]))
  const required = own.filter((one) => one.required === true).map(({ name }) => name)
  const types = [
    ...(own.length === 0 ? [] : [objectType({ properties, required })]),
    ...(body === undefined ? [] : [typeOf(body)]),
  ]
  const needsBody = requestBody?.required === true && (resolved?.required ?? []).length > 0
  return {
    type: types.join(" & ") || "Readonly<Record<string, never>>",
    isOptional: required.length === 0 && !needsBody,
  }
}

/** The types of a success that is no JSON: a text, or nothing. */
const otherAnswers = ({ responses }: Operation) => {
  const contents = Object.entries(responses).flatMap(([status, { content = {} }]) =>
    status.startsWith("2") ? [Object.keys(content)] : [],
  )
  if (contents.some((types) => types.length === 0)) return ["undefined"]
  return contents.some((types) => types.includes("text/plain; charset=utf-8")) ? ["string"] : []
}

const answerOf = (operation: Operation) => {
  const { responses } = operation
  const content = responses["200"]?.content ?? {}
  const lines = content["application/x-ndjson"]
  if (lines !== undefined) return `AsyncGenerator<${typeOf(lines.schema)}, void>`
  const stream = content["text/event-stream"]
  if (stream !== undefined) return `AsyncGenerator<${eventType(stream.schema)}, void>`
  const json = content["application/json"]
  const types = json === undefined ? [] : [typeOf(json.schema)]
  return [...types, ...otherAnswers(operation)].join(" | ")
}

/** What a stream yields for an event: its parsed data, with its name if it has one. */
const eventType = ({ properties = {}, required = [] }: Schema): string => {
  const data = typeOf(properties["data"]?.contentSchema ?? properties["data"]?.else?.contentSchema ?? {})
  return required.includes("event") ? `{ readonly id: string; readonly event: string; readonly data: ${data} }` : data
}

interface Member {
  readonly name: string
  readonly method: string
  readonly path: string
  readonly operation: Operation
}

const groupsOf = ({ paths }: Document) => {
  const groups = new Map<string, Array<Member>>()
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const [group, name] = operation.operationId.split(".") as [string, string]
      const member = { name, method: method.toUpperCase(), path, operation }
      groups.set(group, [...(groups.get(group) ?? []), member])
    }
  }
  return [...groups]
}

/** Makes the client's table of operations, and its types. */
export const generate = (document: Document) => {
  const groups = groupsOf(document)
  const table = Object.fromEntries(
    groups.map(([group, members]) => [
      group,
      Object.fromEntries(
        members.map(({ method, name, operation, path }) => {
          const query = operation.parameters.filter((one) => one.in === "query").map((one) => one.name)
          return [
            name,
            [method, path, query, operation.requestBody !== undefined, ...otherAnswers(operation).map(() => true)],
          ]
        }),
      ),
    ]),
  )
  // A client throws a GatehouseError instead of the schemas of errors.
  const schemas = Object.entries(document.components.schemas)
    .filter(([name]) => !name.endsWith("Error"))
    .map(([name, schema]) => `${comment(schema.description)}export type ${name} = ${typeOf(schema)}\n`)
  const method = ({ name, operation }: Member) => {
    const { isOptional, type } = argumentOf(operation, document)
    return `${comment(operation.summary)}readonly ${name}: (args${isOptional ? "?" : ""}: ${type}, options?: CallOptions) => Promise<${answerOf(operation)}>`
  }
  const members = groups.map(([group, members]) => `readonly ${group}: {\n${members.map(method).join("\n")}\n}`)
  return {
    table,
    javascript: [
      `import { bind } from "./runtime.js"`,
      `export { GatehouseError } from "./runtime.js"`,
      `const operations = ${JSON.stringify(table)}`,
      `export const makeClient = (options) => bind(operations, options)`,
      "",
    ].join("\n"),
    types: [
      `import type { CallOptions, ClientOptions } from "./runtime.js"`,
      `export { GatehouseError, type CallOptions, type ClientOptions } from "./runtime.js"`,
      ...schemas,
      `/** One method for each operation, by group. */\nexport interface Client {\n${members.join("\n")}\n}`,
      `/** Makes a client. It needs only \`fetch\`. */\nexport declare const makeClient: (options: ClientOptions) => Client`,
      "",
    ].join("\n"),
  }
}
