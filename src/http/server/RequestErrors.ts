import { Effect, Layer, type SchemaAST, SchemaIssue } from "effect"
import { HttpServerRequest } from "effect/http"
import { type HttpApiError, HttpApiMiddleware } from "effect/http-api"
import { InvalidRequest } from "../../domain/Errors.ts"
import { RequestErrors, WebhookRequestErrors } from "../api/security.ts"

/** How many faults a sentence has, of the first ones that are read. */
const maxFaults = 3
const maxReadFaults = 16

const fieldsOf = (ast: SchemaAST.AST): ReadonlyArray<string> =>
  ast._tag === "Objects" ? ast.propertySignatures.map(({ name }) => String(name)) : []

/** Marks the message of an unknown field; the index of its `fields` follows. */
const unknownField = "\0"

/** Returns the faults of an issue, and the fields that there are beside each unknown one. */
const format = (issue: SchemaIssue.Issue) => {
  const fields: Array<ReadonlyArray<string>> = []
  const toFaults = SchemaIssue.makeFormatterStandardSchemaV1({
    leafHook: (issue) => {
      if (issue._tag === "MissingKey") return "is required"
      if (issue._tag === "InvalidType" && issue.ast._tag === "Objects") return "must be a JSON object"
      if (issue._tag !== "UnexpectedKey") return SchemaIssue.defaultLeafHook(issue)
      return `${unknownField}${fields.push(fieldsOf(issue.ast)) - 1}`
    },
  })
  return { faults: toFaults(issue).issues, fields }
}

/** A path that may be repeated to the caller: each field is short, for a longer one may be a secret in the wrong place. */
const printable = /^[\w-]{1,32}(\.[\w-]{1,32}){0,3}$/

/** What is wrong with a field that does not exist. */
const unknownFault = (path: string, name: string, fields: ReadonlyArray<string>) => {
  const nearest = nearestField(name, fields)
  const hint = nearest === undefined ? "" : ` (the nearest is ${nearest})`
  return `${printable.test(path) ? path : "A field with an unusual name"} is not a field of this operation${hint}`
}

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
 * One sentence for an invalid request: up to three fields, and what is wrong with each. Never contains a value. Names the
 * nearest field beside an unknown one.
 *
 * @param query of the request; a parameter that was sent several times is an array
 */
const sentence = (kind: string, issue: SchemaIssue.Issue, query: HttpServerRequest.ParsedSearchParams["Service"]) => {
  // The payload schema is a union, and no member accepts a value that is not an object.
  if (issue._tag === "AnyOf" && issue.issues.length === 0) return "The request body must be a JSON object."
  const { faults: found, fields } = format(issue)
  const faults = found.slice(0, maxReadFaults).map(({ path, message }) => {
    const names = (path ?? []).map((part) => String(typeof part === "object" ? part.key : part))
    const at = names.join(".")
    if (message.startsWith(unknownField)) return unknownFault(at, names.at(-1)!, fields[Number(message.slice(1))]!)
    if (kind === "Query" && Array.isArray(query[at])) return `${at} was sent more than once`
    const fault = message.replace(/^Expected (.*)$/s, (_, expected: string) => `must be ${inWords(expected)}`)
    return at === "" ? `${whole[kind] ?? "The request"} ${fault}` : `${at} ${fault}`
  })
  return `${[...new Set(faults)].slice(0, maxFaults).join("; ")}.`
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

/** Longer names are compared by their first characters. */
const maxComparedLength = 64

/** Without case and separators: `expires_at` and `expiresAt` are the same. */
const letters = (name: string) => name.slice(0, maxComparedLength).replace(/[_-]/g, "").toLowerCase()

/** The number of characters to insert, delete or replace to turn one text into the other (Levenshtein). */
const distance = (from: string, to: string): number => {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column)
  for (let i = 1; i <= from.length; i++) {
    const next = [i]
    for (let j = 1; j <= to.length; j++) {
      const replaced = row[j - 1]! + (from[i - 1] === to[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, row[j]! + 1, next[j - 1]! + 1))
    }
    row = next
  }
  return row.at(-1)!
}

/** The field whose name is most like `name`; `undefined` if there are no fields. */
const nearestField = (name: string, fields: ReadonlyArray<string>): string | undefined => {
  const wanted = letters(name)
  let nearest: { readonly field: string; readonly edits: number } | undefined
  for (const field of fields) {
    const edits = distance(wanted, letters(field))
    if (nearest === undefined || edits < nearest.edits) nearest = { field, edits }
  }
  return nearest?.field
}
