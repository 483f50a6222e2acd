import type { OpenApi } from "effect/http-api"
import { exampleOf } from "./examples.ts"
import { securitySchemes } from "./security.ts"

type Operation = OpenApi.OpenAPISpecOperation

const sentence = { type: "string", description: "A sentence for a person." } as const
const code = { type: "string", description: "A word for a program." } as const

/** The schema of an error's body, and the field with the sentence. */
const platformError = {
  sentence: "error",
  schema: { type: "object", required: ["error", "code"], properties: { error: sentence, code } },
} as const
const webhookError = {
  sentence: "message",
  schema: {
    type: "object",
    required: ["success", "message", "code"],
    properties: { success: { const: false }, message: sentence, code },
  },
} as const
type ErrorBody = typeof platformError | typeof webhookError

type Schemas = OpenApi.OpenAPISpec["components"]["schemas"]
type Content = Record<string, { readonly schema: object }>

/** Adds an example to the body of a request or response. */
const withExample = <A extends { readonly content?: Content }>(part: A, schemas: Schemas, fields = {}): A => {
  if (part.content === undefined) return part
  const content = Object.entries(part.content).map(([type, media]) => {
    const example = exampleOf(media.schema, schemas)
    return [type, { ...media, example: typeof example === "object" ? { ...example, ...fields } : example }]
  })
  return { ...part, content: Object.fromEntries(content) }
}

const describeParameter = (parameter: Operation["parameters"][number]) =>
  parameter.name === "limit" ? { ...parameter, ...limit } : parameter

/** The definition has a string, as for every query parameter. */
const limit = {
  description: "The maximum number of entries. A page also ends after 4 MiB of text.",
  schema: { type: "integer", minimum: 1, maximum: 100, default: 50 },
} as const

/** Headers that the security schemes describe. */
const credentials = ["authorization", "x-api-key", "x-org-id", "x-csrf-token", "cookie"]

/** Statuses that only operations with a body have. */
const bodyStatuses = ["413", "415"]

const describeOperation = (operation: Operation, schemas: Schemas, error: ErrorBody): Operation => {
  const { "x-gatehouse-access": access, ...rest } = operation as Operation & { "x-gatehouse-access"?: string }
  const responses = Object.entries({
    ...operation.responses,
    default: { description: "Any other error.", content: { "application/json": { schema: error.schema } } },
  })
    .filter(([status]) => operation.requestBody !== undefined || !bodyStatuses.includes(status))
    .map(([status, response]) => {
      // The example of an error has the error's description as its sentence.
      const fields = status.startsWith("2") ? {} : { [error.sentence]: response.description }
      return [status, withExample(response as { content?: Content }, schemas, fields)]
    })
  return {
    ...rest,
    description: [operation.description, access && `**Access.** ${access}`].filter(Boolean).join("\n\n"),
    parameters: operation.parameters.filter(({ name }) => !credentials.includes(name)).map(describeParameter),
    ...(operation.requestBody === undefined
      ? {}
      : { requestBody: withExample(operation.requestBody as { content: Content }, schemas) }),
    responses: Object.fromEntries(responses),
  } as Operation
}

type Paths = OpenApi.OpenAPISpec["paths"]

const mapOperations = (paths: Paths, change: (operation: Operation, path: string) => Operation): Paths =>
  Object.fromEntries(
    Object.entries(paths).map(([path, operations]) => [
      path,
      Object.fromEntries(
        Object.entries(operations).map(([method, operation]) => [method, change(operation as Operation, path)]),
      ),
    ]),
  )

/** Removes `null` from the schema of an optional body: the definition has a union of the body and `undefined`. */
const optionalBody = (operation: Operation): Operation => {
  const { schema } = operation.requestBody?.content["application/json"] ?? {}
  const [body, nothing] = (schema as { readonly anyOf?: ReadonlyArray<{ readonly type?: string }> })?.anyOf ?? []
  if (body === undefined || nothing?.type !== "null") return operation
  return { ...operation, requestBody: { content: { "application/json": { schema: body } } } } as unknown as Operation
}

/** Lets the schemas of requests have further fields, which the service ignores. */
const openRequests = (api: OpenApi.OpenAPISpec): Schemas => {
  const requests = new Set(
    Object.values(api.paths)
      .flatMap((operations) => Object.values(operations) as Array<Operation>)
      .flatMap(({ requestBody }) => Object.values(requestBody?.content ?? {}))
      .map(({ schema }) =>
        String((schema as { $ref?: string }).$ref)
          .split("/")
          .at(-1),
      ),
  )
  return Object.fromEntries(
    Object.entries(api.components.schemas).map(([name, { additionalProperties, ...schema }]) => [
      name,
      requests.has(name) || additionalProperties === undefined ? schema : { ...schema, additionalProperties },
    ]),
  )
}

/** Adds to the OpenAPI document: security schemes, access in words, examples, and the default response. */
export const describeApi = (spec: Record<string, unknown>): Record<string, unknown> => {
  const defined = spec as unknown as OpenApi.OpenAPISpec
  const api = { ...defined, paths: mapOperations(defined.paths, (operation) => optionalBody(operation)) }
  const schemas = openRequests(api)
  const paths = mapOperations(api.paths, (operation, path) =>
    describeOperation(operation, schemas, path.startsWith("/v1/") ? webhookError : platformError),
  )
  return { ...spec, paths, components: { ...api.components, schemas, securitySchemes } }
}
