import { Arbitrary, Exit, Schema } from "effect"
import type { WireAnswer } from "../support/wire.ts"
import type { Operation } from "./operations.ts"

export const oneOf = <A>(...values: ReadonlyArray<A>) =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: values.length - 1 }))).pipe(
    Arbitrary.map((at) => values[at]!),
  )
export const either = <A, B>(a: Arbitrary.Arbitrary<A>, b: Arbitrary.Arbitrary<B>): Arbitrary.Arbitrary<A | B> =>
  Arbitrary.flatMap(oneOf(true, false), (first): Arbitrary.Arbitrary<A | B> => (first ? a : b))

/** Text with what breaks parsers and databases in it. */
const nasty = [
  "\0",
  "\ud800",
  "'",
  '"',
  "\\",
  "%",
  "%00",
  "../",
  "\r\n",
  "\u{1f4da}",
  "\u202e",
  "__proto__",
  "$1",
  ";--",
]
export const text = either(
  Arbitrary.schema(Schema.String),
  Arbitrary.map(Arbitrary.array(oneOf(...nasty, "a", "Z", "0")), (parts) => parts.join("")),
)
const json = Arbitrary.schema(Schema.Json)

/** What a body may be: anything, the operation's own, or its own with a field exchanged. */
export const bodyFor = (
  { request }: Operation,
  fields: ReadonlyArray<string>,
): Arbitrary.Arbitrary<string | undefined> => {
  if (request === undefined) return oneOf(undefined, "{}", "[]", "x")
  const encode = Schema.encodeUnknownSync(request)
  const valid = Arbitrary.map(Arbitrary.schema(Schema.toType(request)), (value) => encode(value) as object)
  const exchanged = Arbitrary.all({ body: valid, field: oneOf(...fields), value: either(text, json) }).pipe(
    Arbitrary.map(({ body, field, value }) => ({ ...body, [field]: value })),
  )
  return Arbitrary.map(either(either(valid, exchanged), either(exchanged, json)), (body) => JSON.stringify(body))
}

const strict = { onExcessProperty: "error" } as const

/** What is wrong with an answer to an operation; undefined when it is as documented. */
export const faultOf = (
  { errors, response, method, path }: Operation,
  answer: WireAnswer,
  faultOfError: (answer: WireAnswer) => string | undefined,
): string | undefined => {
  if (answer.status !== 200) {
    // A segment that no URL has leads nowhere.
    const allowed = errors.includes(answer.status) || (answer.status === 404 && path.includes("{"))
    return allowed ? faultOfError(answer) : `${method} ${path} answers ${answer.status} ${answer.text}`
  }
  const decoded = Schema.decodeUnknownExit(response, strict)(answer.json)
  return Exit.isSuccess(decoded) ? undefined : `${method} ${path}: ${answer.text}: ${String(decoded.cause)}`
}
