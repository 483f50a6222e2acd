import { Exit, JsonSchema, Schema, SchemaRepresentation } from "effect"
import type { WireAnswer } from "../../support/wire.ts"
import { faultOfError } from "../operations.ts"
import { faultOfWebhookError } from "../webhooks/webhookOperations.ts"

/** A JSON Schema of the document. */
export type Raw = Readonly<Record<string, unknown>>

interface Media {
  readonly schema: Raw
  readonly example?: unknown
}
interface DocumentedOperation {
  readonly security?: ReadonlyArray<Readonly<Record<string, unknown>>>
  readonly parameters: ReadonlyArray<{ readonly name: string; readonly in: string; readonly schema: Raw }>
  readonly requestBody?: { readonly required?: boolean; readonly content: Readonly<Record<string, Media>> }
  readonly responses: Readonly<Record<string, DocumentedResponse>>
}
interface DocumentedResponse {
  readonly $ref?: string
  readonly content?: Readonly<Record<string, Media>>
}
export interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, DocumentedOperation>>>>
  readonly components: {
    readonly schemas: Readonly<Record<string, Raw>>
    readonly responses: Readonly<Record<string, DocumentedResponse>>
  }
}

/** The schema without additional fields. The document leaves answers open, so that they can get more. */
const closed = (value: unknown): unknown => {
  if (Array.isArray(value)) return value.map(closed)
  if (typeof value !== "object" || value === null) return value
  const inner = Object.fromEntries(Object.entries(value).map(([name, one]) => [name, closed(one)]))
  const isObject = "properties" in value && (value as Raw)["type"] === "object"
  return isObject ? { additionalProperties: false, ...inner } : inner
}

/** An operation, with nothing but what `openapi.json` says about it. */
export interface Described {
  readonly method: string
  /** With `{name}` in place of each parameter. */
  readonly path: string
  readonly parameters: DocumentedOperation["parameters"]
  readonly body: Media | undefined
  readonly needsBody: boolean
  /** The names of the schemes that give access; "" means no credential. */
  readonly schemes: ReadonlyArray<string>
  /** Resolves a `$ref`. */
  readonly resolve: (schema: Raw) => Raw
  /** The fault of a request's body; undefined when it matches its schema without additional fields. */
  readonly faultOfBody: (json: unknown) => string | undefined
  /** The fault of the body of a 200, likewise. */
  readonly faultOfResult: (json: unknown) => string | undefined
  /** The fault of an answer; undefined when it is as documented. */
  readonly faultOf: (answer: WireAnswer) => string | undefined
}

type Check = (json: unknown) => string | undefined

/** Every operation of the document. */
export const describedBy = ({ paths, components }: Document): ReadonlyArray<Described> => {
  const open = (schema: Raw) => JsonSchema.fromSchemaOpenApi3_1(closed(schema) as JsonSchema.JsonSchema).schema
  const definitions = Object.fromEntries(Object.entries(components.schemas).map(([name, raw]) => [name, open(raw)]))
  const resolve = (schema: Raw): Raw => {
    const name = /^#\/components\/schemas\/(.+)$/.exec(String(schema["$ref"]))?.[1]
    return name === undefined ? schema : resolve(components.schemas[name]!)
  }

  /** Checks a body against its schema, without additional fields. */
  const fits = ({ schema }: Media): Check => {
    const source = { dialect: "draft-2020-12", schema: open(schema), definitions } as const
    const compiled = SchemaRepresentation.fromJsonSchemaDocument(source, { patterns: "apply" }) as Schema.Codec<
      unknown,
      unknown
    >
    const decode = Schema.decodeUnknownExit(compiled, { onExcessProperty: "error" })
    return (json) => {
      const exit = decode(json)
      return Exit.isSuccess(exit) ? undefined : `${JSON.stringify(json)} does not fit its schema: ${String(exit.cause)}`
    }
  }

  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]): Described => {
      const checks = new Map<number, ReadonlyMap<string, Check>>()
      for (const [status, response] of Object.entries(operation.responses)) {
        const shared = response.$ref?.split("/").at(-1)
        const { content = {} } = shared === undefined ? response : components.responses[shared]!
        const isJson = (type: string) => type === "application/json"
        const entries = Object.entries(content).map(
          ([type, media]) => [type.split(";", 1)[0]!, isJson(type) ? fits(media) : () => undefined] as const,
        )
        if (/^[234]\d\d$/.test(status)) checks.set(Number(status), new Map(entries))
      }
      const body = operation.requestBody?.content["application/json"]
      const faultOfRefusal = path.startsWith("/v1/") ? faultOfWebhookError : faultOfError
      return {
        method: method.toUpperCase(),
        path,
        parameters: operation.parameters,
        body,
        needsBody: operation.requestBody?.required === true,
        schemes: operation.security?.flatMap((one) => (Object.keys(one).length === 0 ? [""] : Object.keys(one))) ?? [],
        resolve,
        faultOfBody: (json) => (body === undefined ? "it takes no body" : fits(body)(json)),
        faultOfResult: (json) => (checks.get(200)?.get("application/json") ?? (() => "it answers no JSON"))(json),
        faultOf: (answer) => {
          const { status, headers, text } = answer
          const types = checks.get(status)
          // A segment that no URL can have matches no path.
          if (types === undefined && !(status === 404 && path.includes("{"))) {
            return `${status} is not in the definition: ${text.slice(0, 300)}`
          }
          const type = String(headers["content-type"]).split(";", 1)[0]!
          if (types?.size === 0 && text !== "") return `${status} has a body`
          if (types !== undefined && types.size > 0 && !types.has(type)) return `${status} comes as ${type}`
          if (!/^\S{1,128}$/.test(String(headers["x-request-id"]))) return "x-request-id is missing"
          if (headers["cache-control"] !== "no-store" && type === "application/json") return "it may be kept in a cache"
          return types?.get(type)?.(answer.json) ?? (status >= 400 ? faultOfRefusal(answer) : undefined)
        },
      }
    }),
  )
}
