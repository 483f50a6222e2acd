import { Effect, Layer, SchemaAST, SchemaIssue } from "effect"
import { HttpServerRequest } from "effect/http"
import { type HttpApiError, HttpApiMiddleware } from "effect/http-api"
import { InvalidRequest } from "../../domain/Errors.ts"
import { faultInWords, faultOf } from "../../domain/Schemas.ts"
import { RequestErrors, WebhookRequestErrors } from "../api/access.ts"
import { nearestName } from "./nearestName.ts"

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
      if (issue._tag !== "UnexpectedKey") return faultOf(issue)
      return `${unknownField}${fields.push(fieldsOf(issue.ast)) - 1}`
    },
  })
  return { faults: toFaults(issue).issues, fields }
}

/**
 * A path that may be repeated to the caller: each field is short, for a longer one may be a secret in the wrong place.
 */
const printable = /^[\w-]{1,32}(\.[\w-]{1,32}){0,3}$/

/** What other services call a field, and how it is used here. */
const otherNames: ReadonlyArray<readonly [field: string, names: RegExp, hint: string]> = [
  ["window", /^(?:duration|period|interval)/i, "use window, in seconds"],
  [
    "cursor",
    /^(?:page|offset|skip|after|starting_after)$/i,
    "lists use cursor: send the next one, which the page before has",
  ],
  ["limit", /^(?:per_?page|page_?size|count|max|take)$/i, "use limit"],
]

/** Whether a field is an id: `id`, `job_id`, `projectId`. */
const isId = (name: string) => /(?:^id|_id|Id)$/.test(name)

/** The id of an operation that another name of an id means: `schedule_id` for `id`, and `id` for `schedule_id`. */
const idMeant = (name: string, fields: ReadonlyArray<string>) => {
  const ids = isId(name) ? fields.filter(isId) : []
  const nearest = nearestName(name, ids)
  if (nearest?.isMeant === true) return nearest.name
  return ids.length === 1 ? ids[0] : ids.find((id) => id === "id")
}

/** What is wrong with a field that does not exist, and the field that is probably meant. */
const unknownFault = (path: string, name: string, fields: ReadonlyArray<string>): Fault => {
  const [meant, , use] = otherNames.find(([field, names]) => fields.includes(field) && names.test(name)) ?? []
  const certain = meant ?? idMeant(name, fields)
  const nearest = certain === undefined ? nearestName(name, fields) : { name: certain, isMeant: true }
  const isMeant = nearest?.isMeant === true
  const other = isMeant ? `did you mean ${nearest.name}?` : `the nearest is ${nearest?.name}`
  const hint = nearest === undefined ? ", which has none" : ` (${use ?? other})`
  const shown = printable.test(path) ? path : "A field with an unusual name"
  return {
    kind: "unknown",
    at: path,
    means: isMeant ? `${path.slice(0, path.length - name.length)}${nearest.name}` : undefined,
    says: `${shown} is not a field of this operation${hint}`,
  }
}

/** What is wrong with a field. */
interface Fault {
  readonly kind: "unknown" | "missing" | "wrong"
  /** The path of the field. */
  readonly at: string
  /** The path of the field that is meant. */
  readonly means?: string | undefined
  /** As a part of a sentence. */
  readonly says: string
}

/** Whether a parameter of the query may be sent several times. */
const isList = (ast: SchemaAST.AST, parameter: string) =>
  ast._tag === "Objects" &&
  ast.propertySignatures.some(({ name, type }) => name === parameter && type._tag === "Arrays")

/** The smallest body of an operation, by the examples of its required fields; `undefined` when one of them has none. */
const exampleOf = (ast: SchemaAST.AST): string | undefined => {
  const first = ast._tag === "Union" ? ast.types.find(({ _tag }) => _tag === "Objects") : ast
  if (first?._tag !== "Objects") return undefined
  const required = first.propertySignatures.filter(({ type }) => type.context?.isOptional !== true)
  const examples = required.map(({ name, type }) => [
    name,
    SchemaAST.resolveAt<ReadonlyArray<unknown>>("examples")(type)?.[0],
  ])
  return examples.length === 0 || examples.some(([, example]) => example === undefined)
    ? undefined
    : JSON.stringify(Object.fromEntries(examples))
}

const whole: Record<string, string> = {
  Payload: "The request body",
  Query: "The query",
  Params: "The path",
  Headers: "The headers",
}

/**
 * One sentence for an invalid request: up to three fields, and what is wrong with each. Never contains a value. Names
 * the nearest field beside an unknown one.
 *
 * @param query of the request; a parameter that was sent several times is an array
 */
const sentence = (kind: string, issue: SchemaIssue.Issue, query: HttpServerRequest.ParsedSearchParams["Service"]) => {
  // The payload schema is a union, and no member accepts a value that is not an object.
  if (issue._tag === "AnyOf" && issue.issues.length === 0) {
    const example = exampleOf(issue.ast)
    return `The request body must be a JSON object${example === undefined ? "" : `: send ${example}`}.`
  }
  const { faults: found, fields } = format(issue)
  const all = found.slice(0, maxReadFaults).map(({ path, message }): Fault => {
    const names = (path ?? []).map((part) => String(typeof part === "object" ? part.key : part))
    const at = names.join(".")
    if (message.startsWith(unknownField)) return unknownFault(at, names.at(-1)!, fields[Number(message.slice(1))]!)
    if (kind === "Query" && Array.isArray(query[at]) && !("ast" in issue && isList(issue.ast, at)))
      return { kind: "wrong", at, says: `${at} was sent more than once` }
    const fault = faultInWords(message)
    const says = at === "" ? `${whole[kind] ?? "The request"} ${fault}` : `${at} ${fault}`
    return { kind: message === "is required" ? "missing" : "wrong", at, says }
  })
  // What was sent under another name is not missing, and comes first.
  const meant = new Set(all.map(({ means }) => means))
  const faults = all.filter(({ at, kind }) => kind !== "missing" || !meant.has(at))
  const first = faults.toSorted((a, b) => Number(a.means === undefined) - Number(b.means === undefined))
  return `${[...new Set(first.map(({ says }) => says))].slice(0, maxFaults).join("; ")}.`
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
