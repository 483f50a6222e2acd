import {
  exampleOf,
  collectRefs,
  type JsonSchema,
  mapValues,
  type Operation,
  type Parameter,
  refName,
  resolved,
  type Response,
  schemaRef,
  type Schemas,
} from "./openapi/OpenApiSchema.ts"
import { chatPart } from "./openapi/eventStreams.ts"
import { responseHeaders, eventSchemas, webhookItems, webhooks, webhookTag } from "./openapi/webhookEvents.ts"
import { securitySchemes } from "./access.ts"

interface DefinedOperation extends Operation {
  readonly "x-gatehouse-access"?: string
}
/** What the document of Effect does not say of an operation. */
export interface OperationFacts {
  /** The roles of people that may call it, in words. */
  readonly roles: string
  /** Whether it takes an `Idempotency-Key`. */
  readonly isRepeatable: boolean
}
type Paths = Readonly<Record<string, Readonly<Record<string, DefinedOperation>>>>
interface Tag {
  readonly name: string
}
/** A document as Effect makes it. */
interface Defined {
  readonly info: Readonly<Record<string, unknown>>
  readonly paths: Paths
  readonly tags: ReadonlyArray<Tag>
  readonly components: { readonly schemas: Schemas }
}

const mapOperations = <A>(paths: Paths, change: (operation: DefinedOperation, path: string) => A) =>
  mapValues(paths, (operations, path) => mapValues(operations, (operation) => change(operation, path)))

/** The schemas of numbers in queries: the definition has strings. */
const numbers: Schemas = {
  limit: { type: "integer", format: "int32", minimum: 1, maximum: 100, default: 50 },
  cost: { type: "integer", format: "int32", minimum: 0, maximum: 1_000_000, default: 1 },
}

/** Headers that the security schemes describe. */
const credentials = ["authorization", "x-api-key", "x-org-id", "x-csrf-token", "cookie"]

/** The header of operations that create something. */
const idempotencyKey: Parameter = {
  name: "idempotency-key",
  in: "header",
  required: false,
  description:
    "Makes the request safe to repeat: 1 to 255 visible ASCII characters, a new key for each thing to create. For 24 " +
    "hours, the same request with the same key gets the same response, with `idempotency-replayed: true`. Another " +
    "request with this key is a 422. A request while the first is in progress is a 409.",
  // Without an example: a tool that sends it twice would get the first response again.
  schema: { type: "string", minLength: 1, maxLength: 255, pattern: "^[\\x21-\\x7e]+$" },
}

/** A parameter, whose description is its own and not its schema's. */
const describeParameter = (parameter: Parameter) => {
  const { description, ...schema } = tidySchema(parameter.schema, "request")
  return { description, ...parameter, schema: numbers[parameter.name] ?? schema }
}

/** Removes `null` from the schema of an optional body: the definition has a union of the body and `undefined`. */
const describeBody = ({ requestBody }: Operation, schemas: Schemas) => {
  const media = requestBody?.content["application/json"]
  if (media === undefined) return {}
  const [body, nothing] = media.schema.anyOf ?? []
  const isOptional = nothing?.type === "null"
  const schema = isOptional ? body! : tidySchema(media.schema, "request")
  const content = { "application/json": { schema, example: media.example ?? exampleOf(schema, schemas) } }
  return { requestBody: { required: !isOptional, content } }
}

/** `ApiKeyPage` in words: `Api key page`. */
const inWords = (name: string) => {
  const words = name.replace(/([a-z0-9])([A-Z])/g, "$1 $2").toLowerCase()
  return words[0]!.toUpperCase() + words.slice(1)
}

const success = ({ content, description, headers }: Response, isRepeatable: boolean, schemas: Schemas) => {
  const name = Object.values(content ?? {}).map(({ schema }) => refName(schema))[0]
  const words = name === undefined ? "The response." : (schemas[name]?.description ?? `${inWords(name)}.`)
  return {
    // Effect has the name of the schema, or Success.
    description: description?.includes(" ") === true ? description : words,
    headers: {
      "x-request-id": headerRef("x-request-id"),
      ...(isRepeatable ? { "idempotency-replayed": headerRef("idempotency-replayed") } : {}),
      ...mapValues(headers ?? {}, ({ schema, ...header }) => {
        const { description, ...rest } = tidySchema(schema, "request")
        return { ...header, description, schema: rest }
      }),
    },
    content: mapValues(content ?? {}, ({ example, schema }) => {
      const tidied = tidySchema(schema, "response")
      return { schema: tidied, example: example ?? exampleOf(tidied, schemas) }
    }),
  }
}

/** Statuses that only operations with a body have. */
const bodyStatuses = ["413", "415"]

const describeOperation = (
  operation: DefinedOperation,
  path: string,
  schemas: Schemas,
  errors: ReturnType<typeof errorResponses>,
  facts: ReadonlyMap<string, OperationFacts>,
) => {
  const { isRepeatable, roles } = facts.get(operation.operationId)!
  const { "x-gatehouse-access": access, description, parameters, responses, summary, ...rest } = operation
  const possible = Object.entries(responses).filter(
    ([status]) => operation.requestBody !== undefined || !bodyStatuses.includes(status),
  )
  return {
    ...rest,
    summary,
    description: [
      description ?? `${summary}.`,
      access && `**Access.** ${access}`,
      access && `**Roles of people.** ${roles}.`,
    ]
      .filter(Boolean)
      .join("\n\n"),
    parameters: [
      ...parameters.filter(({ name }) => !credentials.includes(name)),
      ...(isRepeatable ? [idempotencyKey] : []),
    ].map(describeParameter),
    ...describeBody(operation, schemas),
    responses: {
      ...Object.fromEntries(
        possible.map(([status, response]) => [
          status,
          status.startsWith("2") ? success(response, isRepeatable, schemas) : errors.answer(path, status, response),
        ]),
      ),
      default: errors.otherwise(path),
    },
  }
}

/** The schemas of the definition: those that a response has anywhere are open, all others are those of requests. */
const tidySchemas = ({ components: { schemas }, paths }: Defined): Schemas => {
  const responses = Object.values(paths).flatMap((operations) =>
    Object.values(operations).flatMap(({ responses }) =>
      Object.entries(responses).flatMap(([status, { content }]) => (status.startsWith("2") ? [content] : [])),
    ),
  )
  const inResponses = collectRefs(responses, schemas, new Set())
  return mapValues(schemas, (schema, name) =>
    tidySchema(schema, (inResponses.has(name) ? "response" : "request") as Role),
  )
}

/** The groups as people meet them: what they need first, then what they need later. Others stand in between. */
const firstTags = ["Projects", "API keys", "Deployments", "Webhook endpoints", "Deliveries", "Jobs", "Schedules"]
const lastTags = ["Webhook events", "Chat", "Orgs", "Audit log", "System"]

const inOrder = <T extends Tag>(tags: ReadonlyArray<T>): ReadonlyArray<T> => {
  const rank = ({ name }: Tag) => {
    const last = lastTags.indexOf(name)
    if (last >= 0) return firstTags.length + 1 + last
    const first = firstTags.indexOf(name)
    return first >= 0 ? first : firstTags.length
  }
  return tags.toSorted((a, b) => rank(a) - rank(b))
}

const used = (document: object, schemas: Schemas) => {
  const names = collectRefs(document, schemas, new Set())
  return Object.fromEntries(Object.entries(schemas).filter(([name]) => names.has(name)))
}

/**
 * Makes the document that people and generators of clients read from the one that Effect makes of the definition: one
 * schema for errors and shared responses, open responses and exact requests, formats and bounds, headers, examples, the
 * access to each operation in words, and the webhooks. It holds for every operation of the definition.
 *
 * @param facts what the definition says of each operation besides, by its id
 */
export const describeApi = (
  spec: Record<string, unknown>,
  facts: ReadonlyMap<string, OperationFacts>,
): Record<string, unknown> => {
  const defined = mergeCopies(spec as unknown as Defined)
  const errors = errorResponses(defined.paths, defined.components.schemas)
  const own = {
    ...tidySchemas(defined),
    ...mapValues({ ChatPart: chatPart, ...eventSchemas }, (schema) => tidySchema(schema, "response")),
  }
  const paths = mapOperations(defined.paths, (operation, path) =>
    describeOperation(operation, path, own, errors, facts),
  )
  const { responses } = errors
  // Complete now: each operation has added those of its errors.
  const schemas = { ...own, ...errors.schemas }
  return {
    ...spec,
    info: {
      ...defined.info,
      contact: { name: "The operator of this service" },
      license: { name: "MIT", identifier: "MIT" },
    },
    servers: [server("http://127.0.0.1:3000")],
    paths,
    webhooks,
    tags: inOrder([...defined.tags, webhookTag]),
    components: {
      schemas: used({ paths, responses, pathItems: webhookItems }, schemas),
      responses,
      pathItems: webhookItems,
      headers: responseHeaders,
      securitySchemes,
    },
  }
}

/** The server of a document. */
export const server = (url: string) => ({ url, description: "This service." })

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

/**
 * Replaces copies of schemas in a document by their originals. The description of a copy stays beside the reference.
 */
const mergeCopies = <A extends { readonly components: { readonly schemas: Schemas } }>(document: A): A => {
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

/** What the two interfaces name differently. */
interface Interface {
  /** Of the names of its schema and responses. */
  readonly prefix: string
  /** The field with the sentence. */
  readonly sentence: string
}
const platform: Interface = { prefix: "", sentence: "error" }
const webhook: Interface = { prefix: "V1", sentence: "message" }

const interfaceOf = (path: string): Interface => (path.startsWith("/v1/") ? webhook : platform)

/** An error as the definition has it: the sentence about its code. */
interface Known {
  readonly code: string
  readonly name: string
  readonly description: string
}

const codesOf = (schema: JsonSchema, schemas: Schemas): ReadonlyArray<string> => {
  const { anyOf, oneOf, properties } = resolved(schema, schemas)
  const members = anyOf ?? oneOf
  if (members !== undefined) return members.flatMap((one) => codesOf(one, schemas))
  const code = properties?.["code"]
  return [...(code?.enum ?? []), ...(code?.const === undefined ? [] : [code.const])].map(String)
}

const wordOf = (code: string) => code.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())

const errorsOf = (paths: Paths) =>
  Object.values(paths).flatMap((operations) =>
    Object.values(operations).flatMap(({ responses }) =>
      Object.entries(responses).flatMap(([status, answer]) => (status.startsWith("2") ? [] : [answer])),
    ),
  )

const codesOfResponse = ({ content }: Response, schemas: Schemas) =>
  [...new Set(codesOf(content?.["application/json"]?.schema ?? {}, schemas))].sort()

/** The errors of the definition by their code, as a response with one code describes it. */
const knownErrors = (paths: Paths, schemas: Schemas): ReadonlyMap<string, Known> => {
  const known = new Map<string, Known>()
  for (const answer of errorsOf(paths)) {
    const codes = codesOfResponse(answer, schemas)
    for (const code of codes) {
      const own = codes.length === 1 && answer.description?.endsWith(".") === true ? answer.description : undefined
      const description = own ?? known.get(code)?.description ?? `An error with the code ${code}.`
      known.set(code, { code, name: wordOf(code), description })
    }
  }
  return known
}

/** Codes of responses that no operation declares: those of the server itself. */
const serverCodes = ["method_not_allowed", "request_timeout", "headers_too_large", "expectation_failed"]

const errorSchema = ({ prefix, sentence }: Interface, description: string, code: JsonSchema): JsonSchema => ({
  type: "object",
  description,
  required: [...(prefix === "" ? [] : ["success"]), sentence, "code"],
  properties: {
    ...(prefix === "" ? {} : { success: { type: "boolean", description: "false for every error." } }),
    [sentence]: { type: "string", description: "What is wrong and what to do, in a sentence for people." },
    code: { type: "string", ...code },
  },
})

/** The schema of the responses that an operation does not name: any code. */
const openError = (of: Interface, codes: ReadonlyArray<string>): JsonSchema =>
  errorSchema(
    of,
    `An error ${of === platform ? "under /api and elsewhere" : "under /v1"} with a status that the operation does not name.`,
    {
      description: `A word for programs. Known values: ${codes.join(", ")}. Later versions may have more.`,
      "x-extensible-enum": codes,
    },
  )

const headerRef = (name: string) => ({ $ref: `#/components/headers/${name}` })

const headersOf = (status: string) => ({
  "x-request-id": headerRef("x-request-id"),
  ...(["429", "503"].includes(status) ? { "retry-after": headerRef("retry-after") } : {}),
  ...(status === "401" ? { "www-authenticate": headerRef("www-authenticate") } : {}),
})

/**
 * Makes the shared responses of errors: one response, with a schema of its own, for each interface and set of codes.
 * Operations refer to them. A schema has exactly the codes of its status, since clients that try the schemas of an
 * operation in turn, as those in Rust do, would take a 404 for a 400 otherwise.
 */
const errorResponses = (paths: Paths, schemas: Schemas) => {
  const known = knownErrors(paths, schemas)
  const codes = [...known.keys(), ...serverCodes].sort()
  const responses: Record<string, object> = {}
  const errors: Record<string, JsonSchema> = { Error: openError(platform, codes), V1Error: openError(webhook, codes) }

  const share = (name: string, of: Interface, status: string, all: ReadonlyArray<Known>) => {
    const inTheirWords = (text: string) => text.replace(/\berror names/g, `${of.sentence} names`)
    const description = inTheirWords(all.map((one) => one.description).join(" Or: "))
    const schema = status === "default" ? `${of.prefix}Error` : `${name.replace(/Error$/, "")}Error`
    errors[schema] ??= errorSchema(of, description, {
      description: "A word for programs.",
      enum: all.map(({ code }) => code),
    })
    const example = ({ code, description }: Known) => ({
      ...(of === webhook ? { success: false } : {}),
      [of.sentence]: inTheirWords(description),
      code,
    })
    responses[name] = {
      description,
      headers: headersOf(status),
      content: { "application/json": { schema: schemaRef(schema), example: example(all[0]!) } },
    }
    return { $ref: `#/components/responses/${name}` }
  }

  return {
    schemas: errors,
    responses,
    /** The reference to the shared response of an error. */
    answer: (path: string, status: string, answer: Response) => {
      const of = interfaceOf(path)
      const all = codesOfResponse(answer, schemas).map((code) => known.get(code)!)
      return share(`${of.prefix}${all.map(({ name }) => name).join("Or")}`, of, status, all)
    },
    /** The reference to the response of every other error. */
    otherwise: (path: string) => {
      const description = "Any other error. Its code says which."
      return share(`${interfaceOf(path).prefix}OtherError`, interfaceOf(path), "default", [
        { name: "OtherError", description, code: "method_not_allowed" },
      ])
    },
  }
}

/** Where a schema stands. Responses may get more fields and more values with any version; requests are exact. */
type Role = "request" | "response"

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

/** A boolean that has one value in this response is a boolean: generators make classes of `enum: [true]`. */
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

/** In responses: a string with known values, which may get more. */
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
  const open = additionalProperties === undefined || (role === "response" && additionalProperties === false)
  const more = typeof additionalProperties === "object" ? tidySchema(additionalProperties, role) : additionalProperties
  // `_tag` distinguishes errors inside the service; it is never sent.
  const { _tag: _, ...fields } = properties ?? {}
  const needed = required?.filter((name) => name in fields)
  return {
    ...rest,
    ...(properties === undefined ? {} : { properties: mapValues(fields, (field) => tidySchema(field, role)) }),
    ...(needed === undefined || needed.length === 0 ? {} : { required: needed }),
    ...(open ? {} : { additionalProperties: more }),
  } as JsonSchema
}

/** A schema in the form that most generators of clients understand. */
const tidySchema = (schema: JsonSchema, role: Role): JsonSchema => {
  const plain = [withoutAllOf, withoutAnyOfNull, plainBoolean, constAsEnum].reduce((one, step) => step(one), schema)
  const sized = boundedInteger(role === "response" ? openEnum(plain) : plain)
  const { anyOf, items, oneOf } = sized
  return tidyObject(
    {
      ...sized,
      ...(anyOf === undefined ? {} : { anyOf: anyOf.map((one) => tidySchema(one, role)) }),
      ...(oneOf === undefined ? {} : { oneOf: oneOf.map((one) => tidySchema(one, role)) }),
      ...(items === undefined ? {} : { items: tidySchema(items, role) }),
    },
    role,
  )
}
