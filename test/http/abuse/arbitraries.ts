import { Arbitrary, Schema } from "effect"

type Arb<A> = Arbitrary.Arbitrary<A>

/** One of these values; shrinks towards the first. */
export const oneOf = <A>(...values: ReadonlyArray<A>): Arb<A> =>
  Arbitrary.schema(Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: values.length - 1 }))).pipe(
    Arbitrary.map((at) => values[at]!),
  )

/** A value of one of these, in proportion to their weights; shrinks towards the first. */
export const weighted = <A>(...choices: ReadonlyArray<readonly [weight: number, arbitrary: Arb<A>]>): Arb<A> =>
  Arbitrary.flatMap(oneOf(...choices.flatMap(([weight, one]) => Array<Arb<A>>(weight).fill(one))), (one) => one)

export const constant = <A>(value: A): Arb<A> => Arbitrary.map(Arbitrary.Constant(0), () => value)

/** Text that breaks parsers, databases, logs and headers. */
const nasty = [
  ...["\0", "\ud800", "\udfff", "'", '"', "\\", "%", "%00", "../", "\r\n", "\u{1f4da}", "\u202e", "\ufeff", "\u0085"],
  ...[
    "__proto__",
    "constructor",
    "toString",
    "$1",
    ";--",
    "${jndi:x}",
    "{{7*7}}",
    "e\u0301",
    "\u212a",
    "ﬀ",
    "<script>",
  ],
]
export const text: Arb<string> = weighted(
  [1, Arbitrary.schema(Schema.String)],
  [1, Arbitrary.map(Arbitrary.array(oneOf(...nasty, "a", "Z", "0"), { maxLength: 12 }), (parts) => parts.join(""))],
)
export const json: Arb<unknown> = Arbitrary.schema(Schema.Json)

/** A placeholder in a body for JSON text that no value has; `rawJson` replaces it. */
export const rawMark = "\u{f8ff}raw:"
const raws = [
  "1e400",
  "-1e400",
  "-0",
  "1E+2",
  "1.0",
  "9007199254740993",
  `1${"0".repeat(400)}`,
  '"\\ud800"',
  '"\\u0000"',
]
const deep = (open: string, close: string) => `${open.repeat(10_000)}1${close.repeat(10_000)}`
export const rawNumber: Arb<string> = oneOf(...raws.map((raw) => rawMark + raw))
export const deepValue: Arb<string> = oneOf(rawMark + deep("[", "]"), rawMark + deep('{"a":', "}"))

/** The JSON text of a value, with each placeholder replaced by its raw text. */
export const rawJson = (value: unknown) =>
  JSON.stringify(value).replace(new RegExp(`"${rawMark}((?:[^"\\\\]|\\\\.)*)"`, "gu"), (_, inner: string) =>
    JSON.parse(`"${inner}"`),
  )
