import { exampleOf } from "./examples.ts"
import { chatPart } from "./openapi/eventStreams.ts"
import { errorAnswers, headerRef } from "./openapi/errorAnswers.ts"
import { fieldText } from "./openapi/fieldTexts.ts"
import { answerHeaders } from "./openapi/headers.ts"
import { collectRefs, type JsonSchema, mapValues, refName, type Schemas } from "./openapi/JsonSchema.ts"
import { mergeCopies } from "./openapi/mergeCopies.ts"
import { type Role, tidySchema } from "./openapi/tidySchema.ts"
import { eventSchemas, webhookItems, webhooks, webhookTag } from "./openapi/webhookEvents.ts"
import { securitySchemes } from "./security.ts"

interface Media {
  readonly schema: JsonSchema
  readonly example?: unknown
}
interface Response {
  readonly description?: string
  readonly headers?: Readonly<Record<string, { readonly schema: JsonSchema; readonly required?: boolean }>>
  readonly content?: Readonly<Record<string, Media>>
}
interface Parameter {
  readonly name: string
  readonly in: string
  readonly description?: string
  readonly schema: JsonSchema
}
interface Operation {
  readonly summary?: string
  readonly description?: string
  readonly "x-gatehouse-access"?: string
  readonly parameters: ReadonlyArray<Parameter>
  readonly requestBody?: { readonly required?: boolean; readonly content: Readonly<Record<string, Media>> }
  readonly responses: Readonly<Record<string, Response>>
}
type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>
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

const mapOperations = <A>(paths: Paths, change: (operation: Operation, path: string) => A) =>
  mapValues(paths, (operations, path) => mapValues(operations, (operation) => change(operation, path)))

/** The definition has a string, as for every query parameter. */
const limit = {
  description: "The maximum number of entries. A page also ends after 4 MiB of text.",
  schema: { type: "integer", format: "int32", minimum: 1, maximum: 100, default: 50 },
} as const

/** Headers that the security schemes describe. */
const credentials = ["authorization", "x-api-key", "x-org-id", "x-csrf-token", "cookie"]

/** A parameter, whose description is its own and not its schema's. */
const describeParameter = (parameter: Parameter) => {
  if (parameter.name === "limit") return { ...parameter, ...limit }
  if (parameter.description !== undefined) return parameter
  const { description, ...schema } = fieldText(parameter.name, tidySchema(parameter.schema, "request"))
  return { ...parameter, description, schema }
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

const success = ({ content, description, headers }: Response, { parameters }: Operation, schemas: Schemas) => {
  const name = Object.values(content ?? {}).map(({ schema }) => refName(schema))[0]
  const words = name === undefined ? "The answer." : (schemas[name]?.description ?? `${inWords(name)}.`)
  const isRepeatable = parameters.some((one) => one.name === "idempotency-key")
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
      const tidied = tidySchema(schema, "answer")
      return { schema: tidied, example: example ?? exampleOf(tidied, schemas) }
    }),
  }
}

/** Statuses that only operations with a body have. */
const bodyStatuses = ["413", "415"]

const describeOperation = (
  operation: Operation,
  path: string,
  schemas: Schemas,
  errors: ReturnType<typeof errorAnswers>,
) => {
  const { "x-gatehouse-access": access, description, parameters, responses, summary, ...rest } = operation
  const possible = Object.entries(responses).filter(
    ([status]) => operation.requestBody !== undefined || !bodyStatuses.includes(status),
  )
  return {
    ...rest,
    summary,
    description: [description ?? `${summary}.`, access && `**Access.** ${access}`].filter(Boolean).join("\n\n"),
    parameters: parameters.filter(({ name }) => !credentials.includes(name)).map(describeParameter),
    ...describeBody(operation, schemas),
    responses: {
      ...Object.fromEntries(
        possible.map(([status, response]) => [
          status,
          status.startsWith("2") ? success(response, operation, schemas) : errors.answer(path, status, response),
        ]),
      ),
      default: errors.otherwise(path),
    },
  }
}

/** The schemas of the definition: those that an answer has anywhere are open, all others are those of requests. */
const tidySchemas = ({ components: { schemas }, paths }: Defined): Schemas => {
  const answers = Object.values(paths).flatMap((operations) =>
    Object.values(operations).flatMap(({ responses }) =>
      Object.entries(responses).flatMap(([status, { content }]) => (status.startsWith("2") ? [content] : [])),
    ),
  )
  const inAnswers = collectRefs(answers, schemas, new Set())
  return mapValues(schemas, (schema, name) => tidySchema(schema, (inAnswers.has(name) ? "answer" : "request") as Role))
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
 * schema for errors and shared answers, open answers and exact requests, formats and bounds, headers, examples, the access
 * to each operation in words, and the webhooks. It holds for every operation of the definition.
 */
export const describeApi = (spec: Record<string, unknown>): Record<string, unknown> => {
  const defined = mergeCopies(spec as unknown as Defined)
  const errors = errorAnswers(defined.paths, defined.components.schemas)
  const own = {
    ...tidySchemas(defined),
    ...mapValues({ ChatPart: chatPart, ...eventSchemas }, (schema) => tidySchema(schema, "answer")),
  }
  const paths = mapOperations(defined.paths, (operation, path) => describeOperation(operation, path, own, errors))
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
      headers: answerHeaders,
      securitySchemes,
    },
  }
}

/** The server of a document. */
export const server = (url: string) => ({ url, description: "This service." })
