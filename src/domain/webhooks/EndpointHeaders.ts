import { Schema } from "effect"

/** The extra headers of one endpoint. */
const maxHeaders = 10
/** A token of RFC 9110, section 5.6.2. */
const nameForm = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$/
/** Visible ASCII, with spaces between. */
const valueForm = /^[\x21-\x7e](?:[\x20-\x7e]{0,1022}[\x21-\x7e])?$/
/** Headers that the service, or the connection, sets. In any case. */
const reserved =
  /^(host|content-.*|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect|proxy-.*|cookie|webhook-.*|x-webhook-.*|x-event-type|user-agent|traceparent)$/i

const isDistinct = (names: ReadonlyArray<string>) =>
  new Set(names.map((name) => name.toLowerCase())).size === names.length
const rule = (expected: string, holds: (headers: Readonly<Record<string, string>>) => boolean) =>
  Schema.makeFilter(holds, { expected, toJsonSchema: () => [{}, true] })

/** Extra headers of the requests to an endpoint. */
export const EndpointHeaders = Schema.Record(Schema.String, Schema.String)
  .check(
    rule(`at most ${maxHeaders} headers`, (headers) => Object.keys(headers).length <= maxHeaders),
    rule("header names (letters, digits and -), each once", (headers) => {
      const names = Object.keys(headers)
      return names.every((name) => nameForm.test(name)) && isDistinct(names)
    }),
    rule(
      "header names that the service does not set itself (host, content-*, webhook-*, user-agent and the like)",
      (headers) => Object.keys(headers).every((name) => !reserved.test(name)),
    ),
    rule("header values of 1 to 1,024 visible ASCII characters", (headers) =>
      Object.values(headers).every((value) => valueForm.test(value)),
    ),
  )
  .annotate({
    description:
      "Extra headers of every request to the endpoint, such as authorization: at most 10, with values of 1 to 1,024 visible " +
      "ASCII characters. They are stored encrypted, and answers show only their names. null: none.",
    examples: [{ authorization: "Bearer 8e03978e40d5" }],
  })
