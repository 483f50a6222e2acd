import { Effect, SchemaIssue } from "effect"
import { HttpApiMiddleware } from "effect/http-api"
import { InvalidRequest } from "../domain/Errors.ts"
import { RequestErrors } from "./middleware.ts"

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => (issue._tag === "MissingKey" ? "is required" : SchemaIssue.defaultLeafHook(issue)),
})

const whole: Record<string, string> = {
  Payload: "The request body",
  Query: "The query",
  Params: "The path",
  Headers: "The headers",
}

/** One sentence for a request that does not fit: each field (three at most) and what is wrong with it, never its value. */
const sentence = (kind: string, issue: SchemaIssue.Issue) => {
  const faults = format(issue).issues.map(({ path, message }) => {
    const at = (path ?? []).map((part) => String(typeof part === "object" ? part.key : part)).join(".")
    const fault =
      message === "Expected a valid JSON body" ? "must be valid JSON" : message.replace(/^Expected/, "must be")
    return at === "" ? `${whole[kind] ?? "The request"} ${fault}` : `${at} ${fault}`
  })
  return `${[...new Set(faults)].slice(0, 3).join("; ")}.`
}

/** Turns schema errors of a request into `InvalidRequest`; those of an answer are faults of ours and stay what they are. */
export const layer = HttpApiMiddleware.layerSchemaErrorTransform(RequestErrors, (error) =>
  error.kind === "Body" || error.kind === "ResponseHeaders"
    ? Effect.die(error)
    : Effect.fail(new InvalidRequest({ error: sentence(error.kind, error.cause.issue) })),
)
