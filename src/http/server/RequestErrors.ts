import { Effect, Layer, SchemaIssue } from "effect"
import { HttpServerRequest } from "effect/http"
import type { HttpApiError } from "effect/http-api"
import { HttpApiMiddleware } from "effect/http-api"
import { InvalidRequest } from "../../domain/Errors.ts"
import { RequestErrors, WebhookRequestErrors } from "../api/middleware.ts"

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => {
    if (issue._tag === "MissingKey") return "is required"
    if (issue._tag === "InvalidType" && issue.ast._tag === "Objects") return "must be a JSON object"
    return SchemaIssue.defaultLeafHook(issue)
  },
})

/** The name of a type in schema messages, and in ours. */
const words: Record<string, string> = {
  string: "a string",
  array: "an array",
  "string | null": "a string or null",
  object: "an object",
  "object | null": "an object or null",
  "boolean | null": "true, false or null",
  "array | null": "an array or null",
  number: "a number",
  boolean: "true or false",
  "a string representing a finite number": "a number",
  "a valid JSON body": "valid JSON",
}

const inWords = (expected: string) =>
  /^"\w+"( \| "\w+")+$/.test(expected)
    ? `one of ${expected.replaceAll('"', "").replaceAll(" | ", ", ")}`
    : (words[expected] ?? expected)

const whole: Record<string, string> = {
  Payload: "The request body",
  Query: "The query",
  Params: "The path",
  Headers: "The headers",
}

/**
 * One sentence for an invalid request: up to three fields, and what is wrong with each. Never contains a value.
 *
 * @param query of the request; a parameter that was sent several times is an array
 */
const sentence = (kind: string, issue: SchemaIssue.Issue, query: HttpServerRequest.ParsedSearchParams["Service"]) => {
  // The payload schema is a union, and no member accepts a value that is not an object.
  if (issue._tag === "AnyOf" && issue.issues.length === 0) return "The request body must be a JSON object."
  const faults = format(issue).issues.map(({ path, message }) => {
    const at = (path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".")
    if (kind === "Query" && Array.isArray(query[at])) return `${at} was sent more than once`
    const fault = message.replace(/^Expected (.*)$/s, (_, expected: string) => `must be ${inWords(expected)}`)
    return at === "" ? `${whole[kind] ?? "The request"} ${fault}` : `${at} ${fault}`
  })
  return `${[...new Set(faults)].slice(0, 3).join("; ")}.`
}

const toInvalidRequest = (error: HttpApiError.HttpApiSchemaError) =>
  error.kind === "Body" || error.kind === "ResponseHeaders"
    ? Effect.die(error)
    : Effect.flatMap(HttpServerRequest.ParsedSearchParams, (query) =>
        Effect.fail(new InvalidRequest({ error: sentence(error.kind, error.cause.issue, query) })),
      )

/** Turns schema errors of a request into `InvalidRequest`. Schema errors of a response stay defects. */
export const layer = Layer.merge(
  HttpApiMiddleware.layerSchemaErrorTransform(RequestErrors, toInvalidRequest),
  HttpApiMiddleware.layerSchemaErrorTransform(WebhookRequestErrors, toInvalidRequest),
)
