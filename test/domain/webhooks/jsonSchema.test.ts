/* oxlint-disable unicorn/no-thenable -- a keyword of JSON Schema */
import { assert, it } from "@effect/vitest"
import { parseJson } from "#src/domain/exactJson.ts"
import { type JsonSchema, faultOfSchema, makeCheck } from "#src/domain/webhooks/jsonSchema.ts"

/**
 * Promise (Catalogues): A check of a payload ends within 250,000 steps of equal cost, whatever its schema; a schema
 * that refers outside of itself or recurs is refused, and so is a pattern without a linear automaton.
 */

const faultOf = (schema: JsonSchema, value: unknown) => makeCheck(schema)(value, "data")
const range = <A>(length: number, make: (n: number) => A) => Array.from({ length }, (_, n) => make(n))

/** A schema, values that are valid, and values that are not, with what is said of them. */
const rules: ReadonlyArray<
  readonly [schema: JsonSchema, valid: ReadonlyArray<unknown>, invalid: ReadonlyArray<readonly [unknown, string]>]
> = [
  [true, [null, {}], []],
  [false, [], [[1, "data must be absent: the schema has no such field"]]],
  [{ type: "integer" }, [1, -0, 1e300, 2.0], [[1.5, "data must be a whole number"]]],
  [{ type: ["string", "null"] }, ["", null], [[1, "data must be a string or null"]]],
  [
    { type: "object" },
    [{}],
    [
      [[], "data must be an object"],
      [null, "data must be an object"],
    ],
  ],
  [{ const: { a: [1, null] } }, [{ a: [1, null] }], [[{ a: [1] }, 'data must be {"a":[1,null]}']]],
  [{ enum: ["a", 1, null] }, ["a", 1, null], [["1", 'data must be one of "a", 1, null']]],
  [{ const: { a: 1, b: 2 } }, [{ b: 2, a: 1 }], []],
  [{ minLength: 2 }, ["\u{1f4da}\u{1f4da}", 5], [["\u{1f4da}", "data must be a text of at least 2 characters"]]],
  [{ maxLength: 1 }, ["\u{1f4da}"], [["ab", "data must be a text of at most 1 characters"]]],
  [{ pattern: "^in_[a-z0-9]+$" }, ["in_42", 42], [["in_", "data must be a text that matches ^in_[a-z0-9]+$"]]],
  [{ pattern: "b" }, ["abc"], [["ac", "data must be a text that matches b"]]],
  [
    { minimum: 0, maximum: 10 },
    [0, 10, "x"],
    [
      [-1, "data must be at least 0"],
      [11, "data must be at most 10"],
    ],
  ],
  [
    { exclusiveMinimum: 0, exclusiveMaximum: 1 },
    [0.5],
    [
      [0, "data must be more than 0"],
      [1, "data must be less than 1"],
    ],
  ],
  [{ multipleOf: 0.01 }, [19.99, 0, 4.35], [[0.001, "data must be a multiple of 0.01"]]],
  [{ minItems: 1, maxItems: 2 }, [[1], "x"], [[[], "data must be a list of at least 1 values"]]],
  [
    { uniqueItems: true },
    [[1, "1", { a: 1 }]],
    [
      [
        [
          { a: 1, b: 2 },
          { b: 2, a: 1 },
        ],
        "data must be a list of different values",
      ],
    ],
  ],
  [
    { prefixItems: [{ type: "string" }], items: { type: "number" } },
    [["a", 1, 2], []],
    [
      [["a", 1, "b"], "data.2 must be a number"],
      [[1], "data.0 must be a string"],
    ],
  ],
  [{ items: false, prefixItems: [true] }, [[1]], [[[1, 2], "data.1 must be absent: the schema has no such field"]]],
  [{ required: ["id"] }, [{ id: null }, []], [[{}, "data.id must be present"]]],
  [{ required: ["__proto__"] }, [], [[{}, "data.__proto__ must be present"]]],
  [{ minProperties: 1, maxProperties: 1 }, [{ a: 1 }], [[{}, "data must be an object of at least 1 fields"]]],
  [
    {
      properties: { a: { type: "string" } },
      patternProperties: { "^x-": { type: "number" } },
      additionalProperties: false,
    },
    [{ a: "a", "x-b": 1 }, {}],
    [
      [{ a: 1 }, "data.a must be a string"],
      [{ "x-b": "" }, "data.x-b must be a number"],
      [{ b: 1 }, "data.b must be absent: the schema has no such field"],
    ],
  ],
  [{ additionalProperties: { type: "number" } }, [{ a: 1 }], [[{ a: "" }, "data.a must be a number"]]],
  [{ allOf: [{ minimum: 1 }, { maximum: 2 }] }, [1], [[3, "data must be at most 2"]]],
  [{ anyOf: [{ type: "string" }, { minimum: 5 }] }, ["", 5], [[4, "data must be valid for one of anyOf"]]],
  [
    { oneOf: [{ type: "number" }, { type: "integer" }] },
    [1.5],
    [
      [1, "data must be valid for one of oneOf alone"],
      ["", "data must be valid for one of oneOf alone"],
    ],
  ],
  [{ not: { type: "null" } }, [1], [[null, "data must be other than what not forbids"]]],
  [
    { if: { properties: { kind: { const: "card" } } }, then: { required: ["last4"] }, else: { required: ["iban"] } },
    [
      { kind: "card", last4: "" },
      { kind: "bank", iban: "" },
    ],
    [
      [{ kind: "card" }, "data.last4 must be present"],
      [{ kind: "bank" }, "data.iban must be present"],
    ],
  ],
  [
    {
      $defs: { "a/b": { type: "object", properties: { city: { type: "string" } } } },
      properties: { from: { $ref: "#/$defs/a~1b" }, to: { $ref: "#/$defs/a~1b" } },
    },
    [{ from: {}, to: {} }],
    [[{ from: {}, to: { city: 1 } }, "data.to.city must be a string"]],
  ],
  [
    { title: "t", description: "d", format: "date-time", "x-own": { type: 1 }, examples: [1], default: 2 },
    ["no date"],
    [],
  ],
]

it.each(rules)("%j: what is valid, and what is not, with its path", (schema, valid, invalid) => {
  assert.isUndefined(faultOfSchema(schema, "s"))
  for (const value of valid) assert.isUndefined(faultOf(schema, value), JSON.stringify(value))
  for (const [value, fault] of invalid) assert.strictEqual(faultOf(schema, value), fault)
})

const deep = (levels: number): JsonSchema => (levels === 0 ? {} : { properties: { a: deep(levels - 1) } })

/** Schemas that are refused, with what is said of them. */
const refused: ReadonlyArray<readonly [unknown, string]> = [
  [1, "s must be a JSON Schema: an object, true or false"],
  [
    { $ref: "https://example.com/a.json" },
    's.$ref must be a place in this schema, such as #/$defs/address, not "https://example.com/a.json"',
  ],
  [{ $ref: "other.json#/a" }, 's.$ref must be a place in this schema, such as #/$defs/address, not "other.json#/a"'],
  [{ $ref: "#/$defs/none" }, 's.$ref must be a place in this schema, such as #/$defs/address, not "#/$defs/none"'],
  [{ $ref: "#" }, "s.$ref leads back to itself: a schema must not recur"],
  [{ properties: { child: { $ref: "#" } } }, "s.properties.child.$ref leads back to itself: a schema must not recur"],
  [
    { $defs: { a: { items: { $ref: "#/$defs/b" } }, b: { not: { $ref: "#/$defs/a" } } } },
    "s.$defs.a.items.$ref.not.$ref leads back to itself: a schema must not recur",
  ],
  [{ type: "text" }, "s.type must be one of string, number, integer, boolean, object, array, null, or a list of these"],
  [{ properties: { a: { minimun: 1 } } }, "s.properties.a.minimun is no keyword that Gatehouse checks"],
  [{ unevaluatedProperties: false }, "s.unevaluatedProperties is no keyword that Gatehouse checks"],
  [{ constructor: 1 }, "s.constructor is no keyword that Gatehouse checks"],
  [
    { $schema: "http://json-schema.org/draft-07/schema#" },
    "s.$schema must be https://json-schema.org/draft/2020-12/schema, or absent",
  ],
  [{ minLength: -1 }, "s.minLength must be a whole number from 0"],
  [{ multipleOf: 0 }, "s.multipleOf must be a number above 0"],
  [{ required: "a" }, "s.required must be a list of names"],
  [{ type: [] }, "s.type must be one of string, number, integer, boolean, object, array, null, or a list of these"],
  [{ enum: [] }, "s.enum must be a list of at least 1 value"],
  [{ anyOf: [] }, "s.anyOf must be a list of at least 1 schema"],
  [{ anyOf: [{}, { items: 1 }] }, "s.anyOf.1.items must be a JSON Schema: an object, true or false"],
  [{ properties: [] }, "s.properties must be an object of schemas"],
  [{ pattern: "(?=a)" }, "s.pattern must be a regular expression of RE2: without look-around and back-references"],
  [{ pattern: "(a)\\1" }, "s.pattern must be a regular expression of RE2: without look-around and back-references"],
  [{ pattern: "a".repeat(201) }, "s.pattern must be a pattern of at most 200 characters"],
  [{ pattern: "(a{30}){30}" }, "s.pattern must be a smaller pattern: its repetitions make it too large"],
  [
    { patternProperties: { "(": true } },
    "s.patternProperties.( must be a regular expression of RE2: without look-around and back-references",
  ],
  [
    { allOf: range(21, () => ({ pattern: "a" })) },
    "s.allOf.20.pattern is one pattern too many: a schema has at most 20",
  ],
  [deep(33), `s${".properties.a".repeat(33)} is too deep: schemas are at most 32 levels in each other`],
  [{ allOf: range(5_000, () => ({})) }, "s.allOf.4999 is too much: a schema has at most 5000 schemas in it"],
]

it.each(refused)("%j: a schema is refused by its place", (schema, fault) => {
  assert.strictEqual(faultOfSchema(schema, "s"), fault)
})

const tooLong = "data must be smaller: its check against the schema takes too long"
const text = "x".repeat(250_000)
/** Each level refers four times to the next one. */
const branching = {
  $defs: Object.fromEntries(
    range(14, (n) => {
      const next = { $ref: `#/$defs/d${n + 1}` }
      return [`d${n}`, n === 13 ? { type: "number" } : { anyOf: [next, next, next, next] }]
    }),
  ),
  $ref: "#/$defs/d0",
}

/** Schemas that are accepted, and a payload for which each is too much. */
const costly: Readonly<Record<string, readonly [JsonSchema, unknown]>> = {
  "references that branch": [branching, ""],
  "a pattern of many states on a long text": [{ pattern: "(.*){1,32}[bc]" }, text],
  "many lengths of a long text": [{ allOf: range(900, () => ({ minLength: 3 })) }, text],
  "a large enum for each of many values": [{ items: { enum: range(5_000, String) } }, range(20_000, () => "4999")],
  "lists in lists of different values": [
    range(15, (n) => n).reduce<JsonSchema>((items) => ({ uniqueItems: true, items }), {}),
    range(15, (n) => n).reduce<unknown>(
      (one) => [one],
      range(60_000, (n) => n),
    ),
  ],
  "many names for each of many schemas": [
    { allOf: range(900, () => ({ maxProperties: 20_000 })) },
    Object.fromEntries(range(20_000, (n) => [`k${n}`, 1])),
  ],
}

// What costs most, by depth, by branches and by patterns.
it.each(Object.entries(costly))("%s: the check ends, and says so", (_, [schema, value]) => {
  assert.isUndefined(faultOfSchema(schema, "s"))
  assert.strictEqual(faultOf(schema, value), tooLong)
})

// Seen failing with 0.5 s for each of 20 patterns.
it.each([
  "(?i)[A-\u{1e942}]",
  "(?i)[\\x{100}-\\x{1ffff}]",
  "(?i)[\\u0100-\\uFFFF]",
  "\\p{L}{1,200}",
  `(?:${"a".repeat(150)}){1000}`,
])("compiling many patterns such as %s is refused before it begins", (pattern) => {
  const properties = Object.fromEntries(range(20, (n) => [`p${n}`, { pattern: pattern + n }]))
  assert.match(faultOfSchema({ properties }, "s")!, /^s\.properties\.p\d+\.pattern must be a smaller pattern: /)
})

it("patterns that people write are small, and equal ones count once", () => {
  const uuid = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
  const own = [
    "(?i)^[a-zà-ÿ]{2,40}$",
    "(?i)^[а-яё]+$",
    "^[^@\\s]+@[^@\\s]+$",
    "^\\d{4}-\\d{2}-\\d{2}$",
    "^\\p{L}{1,80}$",
  ]
  const all = [...own, ...own, uuid, uuid, uuid]
  assert.isUndefined(faultOfSchema({ properties: Object.fromEntries(all.map((pattern, n) => [n, { pattern }])) }, "s"))
})

it("keywords that check nothing cost nothing", () => {
  const items = Object.fromEntries(range(3_000, (n) => [`x-${n}`, n]))
  assert.isUndefined(
    faultOf(
      { items },
      range(40_000, (n) => n),
    ),
  )
})

it("numbers are compared by their text", () => {
  const schema = parseJson('{"items":{"enum":[9007199254740993,1.0]},"uniqueItems":true}') as JsonSchema
  assert.isUndefined(faultOf(schema, parseJson("[9007199254740993,1]")))
  assert.strictEqual(faultOf(schema, parseJson("[1,1e0]")), "data must be a list of different values")
  assert.match(faultOf(schema, parseJson("[9007199254740992]"))!, /^data\.0 must be one of 9007199254740993, 1\.0/)
  assert.isUndefined(
    faultOf(parseJson('{"type":"integer","maximum":9007199254740993}') as JsonSchema, parseJson("1.0")),
  )
  assert.strictEqual(
    faultOf(parseJson('{"maximum":9007199254740992}') as JsonSchema, parseJson("9007199254740993")),
    "data must be at most 9007199254740992",
  )
})

it("a nested quantifier costs what the text is long", () => {
  assert.strictEqual(
    faultOf({ pattern: "^(a+)+$" }, `${"a".repeat(100_000)}b`),
    "data must be a text that matches ^(a+)+$",
  )
})

it("a payload of 256 KiB is checked", () => {
  const schema = {
    type: "object",
    properties: {
      rows: { items: { type: "object", required: ["x"], properties: { x: { minimum: 0 }, y: { type: "string" } } } },
    },
  }
  const data = { rows: range(9_000, (x) => ({ x, y: "abcdefghijklm" })) }
  assert.isAbove(JSON.stringify(data).length, 256 * 1024)
  assert.isUndefined(faultOf(schema, data))
})
