import { Context, Effect, Schema, SchemaAST, SchemaIssue } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApi, type HttpApiBuilder, type HttpApiEndpoint, HttpApiError, type HttpApiGroup } from "effect/http-api"
import { InvalidRequest } from "../../domain/Errors.ts"
import { countNames, isRawNumber, parseJson, repeatedName, scanJson } from "../../domain/exactJson.ts"
import { cut } from "../../domain/Schemas.ts"
import { knownFieldsOnly } from "../api/responses.ts"

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

/** The JSON values of a body that is not long, of one field that takes any JSON, and of a whole body. */
const fewValues = 1_000
const maxAnyValues = 30_000
export const maxValues = 50_000

/** How many values a body of this shape has at most. */
const valuesOf = (shape: Shape): number => {
  if (shape === undefined) return 1
  if (shape === "any") return maxAnyValues
  return "item" in shape
    ? 1 + shape.maxItems * valuesOf(shape.item)
    : [...shape.fields.values()].reduce<number>((sum, field) => sum + valuesOf(field), 1)
}

/**
 * A body as its schema reads it: numbers are raw only where it takes any JSON, and of a list that is too long it reads
 * the first item too many, at which it fails.
 */
const fit = (value: unknown, shape: Shape): unknown => {
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

const tooManyValues = (limit: number) =>
  new InvalidRequest({
    error: `The request body has more than ${limit.toLocaleString("en")} JSON values. Send fewer.`,
  })
const maxShownName = 60
const repeated = (name: string) =>
  new InvalidRequest({
    error: `The request body has the member ${JSON.stringify(cut(name, maxShownName))} twice. Send it once.`,
  })
const notJson = new Schema.SchemaError(new SchemaIssue.InvalidValue({ message: "Expected a valid JSON body" }))

/** Makes the reader of the bodies of an operation: an effect with its payload. */
const makeReader = ({ annotations, payload }: HttpApiEndpoint.Top) => {
  const schema = Schema.Union([...payload.values()].flatMap(({ schemas }) => schemas))
  const shape = shapeOf(schema.ast)
  const limit = shape === "any" ? fewValues : Math.min(Math.max(fewValues, valuesOf(shape)), maxValues)
  const options = Context.getOrUndefined(annotations, HttpApi.PayloadParseOptions) ?? knownFieldsOnly
  const decode = Schema.decodeUnknownEffect(schema, options)
  // An operation whose body may be absent reads null, which is how JSON says undefined.
  const ast = SchemaAST.toEncoded(schema.ast)
  const mayBeAbsent = (ast._tag === "Union" ? ast.types : [ast]).some(SchemaAST.isNull)
  const empty = mayBeAbsent ? null : undefined
  // Of a long body the first fault is enough: each item of a list can have one.
  const decodeLong = Schema.decodeUnknownEffect(schema, { ...options, errors: "first" })

  const orFault = <A, R>(decoded: Effect.Effect<A, Schema.SchemaError, R>) =>
    Effect.mapError(decoded, (cause) => new HttpApiError.HttpApiSchemaError({ kind: "Payload", cause }))

  return (text: string): Effect.Effect<unknown, unknown, unknown> => {
    if (text === "") return orFault(decode(empty))
    const scan = scanJson(text, limit)
    const isLong = scan.values > fewValues
    if (scan.values > limit) return Effect.fail(tooManyValues(limit))
    let body: unknown
    try {
      body = parseJson(text, scan)
    } catch {
      return orFault(Effect.fail(notJson))
    }
    // Parsers differ in which of two equal members they take (RFC 8259, section 4), so that a proxy that checks or
    // completes a body could mean another request.
    if (scan.names !== countNames(body)) return Effect.fail(repeated(repeatedName(text)!))
    if (!isLong && !scan.hasRawNumbers) return orFault(decode(body))
    return orFault((isLong ? decodeLong : decode)(fit(body, shape)))
  }
}

type Handler = (request: {
  readonly endpoint: HttpApiEndpoint.Top
  readonly request: HttpServerRequest.HttpServerRequest
}) => Effect.Effect<unknown, unknown, unknown>

const withBody = (endpoint: HttpApiEndpoint.Top, handler: Handler): Handler => {
  const read = makeReader(endpoint)
  return (call) => {
    const sent = call.request.headers["content-type"] ?? "application/json"
    const contentType = sent.split(";", 1)[0]!.trim().toLowerCase()
    if (contentType !== "application/json") {
      return Effect.succeed(HttpServerResponse.text(`Unsupported content-type: ${contentType}`, { status: 415 }))
    }
    const payload = Effect.flatMap(Effect.orDie(call.request.text), read)
    return Effect.flatMap(payload, (payload) => handler({ ...call, payload } as never))
  }
}

/**
 * Handlers whose bodies are read here instead of by Effect: numbers keep their text, and what a body costs is bounded
 * before it is decoded.
 */
export const readingBodies = <H extends object>(handlers: H): H => {
  const whole = handlers as unknown as HttpApiBuilder.Handlers<never> & { readonly group: HttpApiGroup.Top }
  const handleAll = (all: Readonly<Record<string, Handler>>) => {
    let made: HttpApiBuilder.Handlers<never> = whole
    for (const [identifier, handler] of Object.entries(all)) {
      const endpoint = whole.group.endpoints[identifier]!
      made = (
        endpoint.payload.size > 0
          ? made.handleRaw(identifier as never, withBody(endpoint, handler) as never)
          : made.handle(identifier as never, handler as never)
      ) as never
    }
    return made
  }
  return { ...handlers, handleAll }
}
