import { Config, Context, Effect, Option, Schema, SchemaAST } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { readFileSync } from "node:fs"
import { Timestamp } from "../domain/Schemas.ts"
import { keepNumbers, repeatedName } from "../domain/exactJson.ts"
import { fit, shapeOf } from "../domain/jsonShape.ts"

/** An optional flag. */
export const textFlag = (name: string, about: string) =>
  Flag.String(name).pipe(Flag.withDescription(about), Flag.optional)

/** An optional flag with a whole number. */
export const intFlag = (name: string, about: string) => Flag.Int(name).pipe(Flag.withDescription(about), Flag.optional)

/** A flag that is off by default. */
export const switchFlag = (name: string, about: string) =>
  Flag.Boolean(name).pipe(Flag.withDescription(about), Flag.withDefault(false))

export const textArgument = (name: string, about: string) => Argument.String(name).pipe(Argument.withDescription(about))

/** The root command, with the flags that every command takes. */
export const root = Command.make("gatehouse").pipe(
  Command.withSharedFlags({
    url: Flag.String("url").pipe(
      Flag.withDescription(
        "The address of the service (default: GATEHOUSE_URL, the profile's, or http://127.0.0.1:3000)",
      ),
      Flag.withFallbackConfig(Config.String("GATEHOUSE_URL")),
      Flag.optional,
    ),
    profile: Flag.String("profile").pipe(
      Flag.withDescription("The profile that login stored (default: GATEHOUSE_PROFILE, or the last login)"),
      Flag.withFallbackConfig(Config.String("GATEHOUSE_PROFILE")),
      Flag.optional,
    ),
    json: switchFlag("json", "Print the exact response of the service as one JSON document"),
  }),
)

/** The address in `--url` or GATEHOUSE_URL. */
export const Url = Effect.map(root, ({ url }) => Option.filter(url, (text) => text !== ""))

/** The name in `--profile` or GATEHOUSE_PROFILE. */
export const ProfileName = Effect.map(root, ({ profile }) => Option.filter(profile, (text) => text !== ""))

/** Whether standard output is one JSON document instead of text. */
export const Json = Effect.map(root, ({ json }) => json)

const hasNamesOnce = Schema.makeFilter((text: string) => {
  try {
    const name = repeatedName(text)
    return name === undefined || `JSON whose objects have each member once: ${JSON.stringify(name)} is there twice`
  } catch {
    // The parser says why it is no JSON.
    return true
  }
})

/** A text as any JSON value, whose numbers keep their text. As in a request, no object has a member twice. */
export const JsonText = Schema.String.check(hasNamesOnce).pipe(
  Schema.decodeTo(Schema.fromJsonString(Schema.Unknown, { reviver: keepNumbers })),
)

const isNullable = (ast: SchemaAST.AST) => SchemaAST.isUnion(ast) && ast.types.some(SchemaAST.isNull)

/** The schema of a field without `null`. */
const withoutNull = (ast: SchemaAST.AST) => {
  const others = SchemaAST.isUnion(ast) ? ast.types.filter((type) => !SchemaAST.isNull(type)) : []
  return others.length === 1 ? others[0]! : ast
}

/** The first sentence about a field, and its default. */
export const helpOf = (ast: SchemaAST.AST) => {
  const text =
    SchemaAST.resolveDescription(ast) ??
    SchemaAST.resolveDescription(withoutNull(ast)) ??
    (ast.context?.annotations?.description as string | undefined)
  return text
    ?.split(/(?<=\.) (?=[A-Z]|null:|\d+:)/)
    .filter((sentence, n) => n === 0 || /^(Default|Absent):/.test(sentence))
    .join(" ")
    .replace(/\.$/, "")
}

const utf8 = new TextDecoder("utf-8", { fatal: true })

/** The text of a file, or of standard input (0). Throws when its bytes are not UTF-8. */
export const readText = (file: string | 0) => utf8.decode(readFileSync(file))

/**
 * A text as it is, or with `@` the text of a file; `@-` is standard input. Keeps secrets out of the list of processes.
 */
export const textOrFile = (text: string) => (text.startsWith("@") ? readText(text === "@-" ? 0 : text.slice(1)) : text)

/** Whether a field may be absent. */
export const isOptional = ({ context }: SchemaAST.AST) => context?.isOptional === true

/** The flag of a field: a number, a word, a text, a repeated text, or else any JSON. */
export const flagOf = (
  name: string,
  ast: SchemaAST.AST,
  mayBeAbsent = isOptional(ast),
): Flag.Flag<Option.Option<unknown>> => {
  const type = withoutNull(ast)
  const encoded = SchemaAST.toEncoded(type)
  const help = helpOf(ast) ?? name
  const described = <A>(flag: Flag.Flag<A>, more = "") => Flag.withDescription(flag, help + more)
  const option = <A>(flag: Flag.Flag<A>) => (mayBeAbsent ? Flag.optional(flag) : Flag.map(flag, Option.some))
  if (SchemaAST.isBoolean(type)) {
    // What the switch does: "true: only counts" is "Only counts", "false: it is paused" is "--no-active: it is paused".
    const does = help
      .replace(/^true: ./, (start) => start.slice(-1).toUpperCase())
      .replace(/\b(true|false): /g, (_, value) => `--${value === "true" ? "" : "no-"}${name}: `)
    return option(Flag.withDescription(Flag.Boolean(name), does))
  }
  if (SchemaAST.isNumber(type)) return option(described(Flag.Finite(name)))
  if (SchemaAST.isString(encoded)) {
    const text = described(Flag.String(name))
    return option(type.encoding === undefined ? text : Flag.withSchema(text, Schema.make(type)))
  }
  if (SchemaAST.isUnion(encoded) && encoded.types.every(SchemaAST.isLiteral)) {
    return option(
      described(
        Flag.Literals(
          name,
          encoded.types.map(({ literal }) => String(literal)),
        ),
      ),
    )
  }
  if (SchemaAST.isArrays(encoded) && encoded.rest.every(SchemaAST.isString)) {
    return described(Flag.String(name), "; repeat for each").pipe(
      Flag.between(0, 1000),
      Flag.map((texts) => (mayBeAbsent && texts.length === 0 ? Option.none() : Option.some(texts))),
    )
  }
  return described(Flag.String(name), "; as JSON, or @file").pipe(
    Flag.mapTryCatch(textOrFile, () => `--${name}: the file cannot be read, or is not UTF-8`),
    Flag.withSchema(JsonText),
    Flag.map((json) => fit(json, shapeOf(type))),
    option,
  )
}

/** `max_attempts` and `maxAttempts` as `max-attempts`. */
export const kebab = (name: string) => name.replace(/_/g, "-").replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)

/** The name of a field's flag: `--max-attempts` of `max_attempts`, and `--event-type` of the list `event_types`. */
export const flagNameOf = (field: string, ast: SchemaAST.AST) => {
  const encoded = SchemaAST.toEncoded(withoutNull(ast))
  const isRepeated = SchemaAST.isArrays(encoded) && encoded.rest.every(SchemaAST.isString)
  return isRepeated ? kebab(field).replace(/s$/, "") : kebab(field)
}

type Fields = Readonly<Record<string, Schema.Constraint>>

/**
 * The flags of a payload: one for each field of its schema, so that a field that the API gets is a flag the same day.
 * Takes the fields of the schema, without those that the command takes in another way.
 */
export const payloadFlags = <const F extends Fields>(fields: F) =>
  Object.fromEntries(
    Object.entries(fields).map(([field, { ast }]) => [field, flagOf(flagNameOf(field, ast), ast, true)]),
  ) as unknown as { readonly [K in keyof F]: Flag.Flag<Option.Option<Schema.Schema.Type<F[K]>>> }

/** The flag that sets fields to `null`, if some may be. */
export const clearFlag = (fields: ReadonlyMap<string, SchemaAST.AST>) => {
  const names = [...fields].flatMap(([field, ast]) => (isNullable(ast) ? [field] : []))
  if (names.length === 0) return {}
  return {
    clear: Flag.Literals("clear", names).pipe(
      Flag.withDescription("A setting to clear; repeat for each"),
      Flag.between(0, names.length),
      Flag.map((cleared): Readonly<Record<string, null>> => Object.fromEntries(cleared.map((field) => [field, null]))),
    ),
  }
}

/** The flags of a paged list. */
export const page = {
  limit: Flag.Int("limit").pipe(
    Flag.withDescription("The maximum number of entries, 1 to 100 (default: 50)"),
    Flag.withDefault(50),
  ),
  cursor: textFlag("cursor", "Continue after the last list"),
  all: switchFlag("all", "List everything, page by page"),
}

/** The values of `page`. */
export interface PageFlags {
  readonly limit: number
  readonly cursor: Option.Option<string>
  readonly all: boolean
}

/** The flags of a list that is complete by default. */
export const wholeList = {
  ...page,
  limit: Flag.Int("limit").pipe(
    Flag.withDescription("The maximum number of entries, 1 to 1000 (default: 1000)"),
    Flag.withDefault(1000),
  ),
}

/** A time, such as 2026-11-20T17:00:00Z. */
export const time = (name: string) => Flag.String(name).pipe(Flag.withSchema(Timestamp))

/** The values of the flags that were given. A flag that was not given is absent, not `undefined`. */
export const given = <A extends Readonly<Record<string, Option.Option<unknown>>>>(flags: A) =>
  Object.fromEntries(
    Object.entries(flags).flatMap(([name, value]) => (Option.isSome(value) ? [[name, value.value]] : [])),
  ) as { readonly [K in keyof A]?: Option.Option.Value<A[K]> }

/** The flag that chooses the org of a command. */
export const orgFlag = textFlag("org", "The id of the org; not needed if there is only one org")

/** The org that the administrator acts for under `/v1`. */
export const ActFor = Context.Reference<Option.Option<string>>("gatehouse/cli/ActFor", { defaultValue: Option.none })

export const group = <const C extends ReadonlyArray<Command.Command.SubcommandEntry>>(
  name: string,
  about: string,
  commands: C,
) => Command.make(name).pipe(Command.withDescription(about), Command.withSubcommands(commands))

/** The flag that names the org to act for under `/v1`. */
export const actForFlag = textFlag("org", "With the administrator's token: the id of the org to act for")

/** A group of commands under `/v1`: of the org of an API key, or of the one in `--org`. */
export const tenantGroup = <const C extends ReadonlyArray<Command.Command.SubcommandEntry>>(
  name: string,
  about: string,
  commands: C,
) =>
  Command.make(name).pipe(
    Command.withDescription(`${about}: of the API key, or of --org`),
    Command.withSharedFlags({ org: actForFlag }),
    Command.withSubcommands(commands),
    Command.provideSync(ActFor, ({ org }) => org),
  )
