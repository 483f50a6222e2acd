import { Context, Effect, Schema, SchemaAST } from "effect"
import { type HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApi, type HttpApiBuilder, type HttpApiEndpoint, HttpApiError, type HttpApiGroup } from "effect/http-api"
import { InvalidRequest } from "../../domain/Errors.ts"
import { jsonFault } from "../../domain/jsonFault.ts"
import { countNames, parseJson, repeatedName, scanJson } from "../../domain/exactJson.ts"
import { fit, type Shape, shapeOf } from "../../domain/jsonShape.ts"
import { cut } from "../../domain/Schemas.ts"
import { knownFieldsOnly } from "../api/responses.ts"

/** The JSON values of a body that is not long, of one field that takes any JSON, and of a whole body. */
const fewValues = 1_000
const maxAnyValues = 30_000
const maxValues = 50_000
/** The members of all objects of a body. Each different name costs more than a value. */
const maxMembers = 20_000

/** How many values a body of this shape has at most. */
const valuesOf = (shape: Shape): number => {
  if (shape === undefined) return 1
  if (shape === "any") return maxAnyValues
  return "item" in shape
    ? 1 + shape.maxItems * valuesOf(shape.item)
    : [...shape.fields.values()].reduce<number>((sum, field) => sum + valuesOf(field), 1)
}

const tooMany = (limit: number, what: string) =>
  new InvalidRequest({ error: `The request body has more than ${limit.toLocaleString("en")} ${what}. Send fewer.` })
const maxShownName = 60
const repeated = (name: string) =>
  new InvalidRequest({
    error: `The request body has the member ${JSON.stringify(cut(name, maxShownName))} twice. Send it once.`,
  })
const notJson = (error: unknown) => new InvalidRequest({ error: `The request body is ${jsonFault(error)}.` })

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
    if (scan.values > limit) return Effect.fail(tooMany(limit, "JSON values"))
    if (scan.names > maxMembers) return Effect.fail(tooMany(maxMembers, "members of objects"))
    let body: unknown
    try {
      body = parseJson(text, scan)
    } catch (error) {
      return Effect.fail(notJson(error))
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
