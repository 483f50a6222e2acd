import { Context, Effect, Option } from "effect"
import { HttpServerRequest } from "effect/http"
import { HttpApi, type HttpApiEndpoint } from "effect/http-api"
import { InvalidRequest } from "../../domain/Errors.ts"
import { furtherFieldsIgnored } from "../api/parseOptions.ts"

/** A name that may be repeated to the caller: a longer one may be a secret in the wrong place. */
const printable = /^[\w-]{1,32}$/

/** Whether the callers of an operation send more than it reads. */
const ignoresFields = ({ annotations }: HttpApiEndpoint.Top) =>
  Option.contains(Context.getOption(annotations, HttpApi.PayloadParseOptions), furtherFieldsIgnored)

/**
 * Refuses a query for an operation that takes none: else a `limit` that belongs into the body would have no effect. Queries of
 * other operations are decoded with their schema.
 */
export const refuseUnknownQuery = (endpoint: HttpApiEndpoint.Top) =>
  endpoint.query !== undefined || ignoresFields(endpoint)
    ? Effect.void
    : Effect.flatMap(HttpServerRequest.ParsedSearchParams, (query) => {
        for (const name in query) {
          const known = printable.test(name) ? name : "A name in the query"
          const error = `${known} is not a query parameter of this operation, which has none.`
          return Effect.fail(new InvalidRequest({ error }))
        }
        return Effect.void
      })
