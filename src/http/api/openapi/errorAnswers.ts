import { type JsonSchema, resolved, type Schemas, schemaRef } from "./JsonSchema.ts"

/** What the two interfaces name differently. */
interface Interface {
  /** Of the names of its schema and answers. */
  readonly prefix: string
  /** The field with the sentence. */
  readonly sentence: string
}
const platform: Interface = { prefix: "", sentence: "error" }
const webhook: Interface = { prefix: "V1", sentence: "message" }

const interfaceOf = (path: string): Interface => (path.startsWith("/v1/") ? webhook : platform)

/** An error as the definition has it: the sentence about its code. */
interface Known {
  readonly code: string
  readonly name: string
  readonly description: string
}

const codesOf = (schema: JsonSchema, schemas: Schemas): ReadonlyArray<string> => {
  const { anyOf, oneOf, properties } = resolved(schema, schemas)
  const members = anyOf ?? oneOf
  if (members !== undefined) return members.flatMap((one) => codesOf(one, schemas))
  const code = properties?.["code"]
  return [...(code?.enum ?? []), ...(code?.const === undefined ? [] : [code.const])].map(String)
}

const wordOf = (code: string) => code.replace(/(?:^|_)([a-z])/g, (_, letter: string) => letter.toUpperCase())

/** The answers of operations, by path, method and status. */
export type OperationAnswers = Readonly<
  Record<string, Readonly<Record<string, { readonly responses: Readonly<Record<string, Answer>> }>>>
>

const errorsOf = (paths: OperationAnswers) =>
  Object.values(paths).flatMap((operations) =>
    Object.values(operations).flatMap(({ responses }) =>
      Object.entries(responses).flatMap(([status, answer]) => (status.startsWith("2") ? [] : [answer])),
    ),
  )

const codesOfAnswer = ({ content }: Answer, schemas: Schemas) =>
  [...new Set(codesOf(content?.["application/json"]?.schema ?? {}, schemas))].sort()

/** The errors of the definition by their code, as an answer with one code describes it. */
const knownErrors = (paths: OperationAnswers, schemas: Schemas): ReadonlyMap<string, Known> => {
  const known = new Map<string, Known>()
  for (const answer of errorsOf(paths)) {
    const codes = codesOfAnswer(answer, schemas)
    for (const code of codes) {
      const own = codes.length === 1 && answer.description?.endsWith(".") === true ? answer.description : undefined
      const description = own ?? known.get(code)?.description ?? `An error with the code ${code}.`
      known.set(code, { code, name: wordOf(code), description })
    }
  }
  return known
}

/** Codes of answers that no operation declares: those of the server itself. */
const serverCodes = ["method_not_allowed", "request_timeout", "headers_too_large", "expectation_failed"]

const errorSchema = ({ prefix, sentence }: Interface, description: string, code: JsonSchema): JsonSchema => ({
  type: "object",
  description,
  required: [...(prefix === "" ? [] : ["success"]), sentence, "code"],
  properties: {
    ...(prefix === "" ? {} : { success: { type: "boolean", description: "false for every error." } }),
    [sentence]: { type: "string", description: "What is wrong and what to do, in a sentence for people." },
    code: { type: "string", ...code },
  },
})

/** The schema of the answers that an operation does not name: any code. */
const openError = (of: Interface, codes: ReadonlyArray<string>): JsonSchema =>
  errorSchema(
    of,
    `An error ${of === platform ? "under /api and elsewhere" : "under /v1"} with a status that the operation does not name.`,
    {
      description: `A word for programs. Known values: ${codes.join(", ")}. Later versions may have more.`,
      "x-extensible-enum": codes,
    },
  )

export const headerRef = (name: string) => ({ $ref: `#/components/headers/${name}` })

const headersOf = (status: string) => ({
  "x-request-id": headerRef("x-request-id"),
  ...(["429", "503"].includes(status) ? { "retry-after": headerRef("retry-after") } : {}),
  ...(status === "401" ? { "www-authenticate": headerRef("www-authenticate") } : {}),
})

interface Answer {
  readonly description?: string
  readonly content?: Readonly<Record<string, { readonly schema: JsonSchema }>>
}

/**
 * Makes the shared answers of errors: one answer, with a schema of its own, for each interface and set of codes. Operations
 * refer to them. A schema has exactly the codes of its status, since clients that try the schemas of an operation in turn,
 * as those in Rust do, would take a 404 for a 400 otherwise.
 */
export const errorAnswers = (paths: OperationAnswers, schemas: Schemas) => {
  const known = knownErrors(paths, schemas)
  const codes = [...known.keys(), ...serverCodes].sort()
  const responses: Record<string, object> = {}
  const errors: Record<string, JsonSchema> = { Error: openError(platform, codes), V1Error: openError(webhook, codes) }

  const share = (name: string, of: Interface, status: string, all: ReadonlyArray<Known>) => {
    const inTheirWords = (text: string) => text.replace(/\berror names/g, `${of.sentence} names`)
    const description = inTheirWords(all.map((one) => one.description).join(" Or: "))
    const schema = status === "default" ? `${of.prefix}Error` : `${name.replace(/Error$/, "")}Error`
    errors[schema] ??= errorSchema(of, description, {
      description: "A word for programs.",
      enum: all.map(({ code }) => code),
    })
    const example = ({ code, description }: Known) => ({
      ...(of === webhook ? { success: false } : {}),
      [of.sentence]: inTheirWords(description),
      code,
    })
    responses[name] = {
      description,
      headers: headersOf(status),
      content: { "application/json": { schema: schemaRef(schema), example: example(all[0]!) } },
    }
    return { $ref: `#/components/responses/${name}` }
  }

  return {
    schemas: errors,
    responses,
    /** The reference to the shared answer of an error. */
    answer: (path: string, status: string, answer: Answer) => {
      const of = interfaceOf(path)
      const all = codesOfAnswer(answer, schemas).map((code) => known.get(code)!)
      return share(`${of.prefix}${all.map(({ name }) => name).join("Or")}`, of, status, all)
    },
    /** The reference to the answer of every other error. */
    otherwise: (path: string) => {
      const description = "Any other error. Its code says which."
      return share(`${interfaceOf(path).prefix}OtherError`, interfaceOf(path), "default", [
        { name: "OtherError", description, code: "method_not_allowed" },
      ])
    },
  }
}
