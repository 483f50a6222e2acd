import { Result, Schema, SchemaIssue } from "effect"
import { readFileSync } from "node:fs"
import type { CiProvider } from "../domain/deployments/CiRun.ts"
import {
  type ClaimField,
  claimFields,
  type ClaimMap,
  pinFaultOf,
  readByMap,
} from "../domain/deployments/providers/claimReaders.ts"
import { presetNames, presetOf } from "../domain/deployments/providers/knownProviders.ts"
import { jsonFault } from "../domain/jsonFault.ts"
import { keyTypes } from "../infrastructure/oidc/OidcKeys.ts"

/** Entries of the file; each costs memory and fetches. */
const maxProviders = 100
const maxFileBytes = 1024 * 1024

const text = Schema.NonEmptyString
const matching = (pattern: RegExp, expected: string) => Schema.String.check(Schema.isPattern(pattern, { expected }))

/** Keys decide who may register, so they come over https or from this machine. */
const Url = Schema.String.check(
  Schema.makeFilter(
    (value: string) =>
      URL.canParse(value) &&
      new URL(value).port !== "0" &&
      (value.startsWith("https://") || /^http:\/\/(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?(\/|$)/.test(value)),
    { expected: "an https URL, or an http URL on loopback" },
  ),
)
const Provider = matching(/^[a-z0-9][a-z0-9-]{0,62}$/, "a name of lower-case letters, digits and hyphens")
const common = {
  jwks: Schema.optionalKey(Url),
  audiences: Schema.optionalKey(Schema.NonEmptyArray(text)),
  algorithms: Schema.optionalKey(
    Schema.NonEmptyArray(
      Schema.String.check(
        Schema.makeFilter((value: string) => keyTypes.has(value), {
          expected: `one of ${[...keyTypes.keys()].join(", ")}`,
        }),
      ),
    ),
  ),
}
const PresetEntry = Schema.Struct({
  preset: Schema.String.check(
    Schema.makeFilter((value: string) => (presetNames as ReadonlyArray<string>).includes(value), {
      expected: `one of ${presetNames.join(", ")}`,
    }),
  ),
  provider: Schema.optionalKey(Provider),
  issuer: Schema.optionalKey(Url),
  ...common,
})
const Source = Schema.Union([text, Schema.Struct({ claim: text }), Schema.Struct({ value: text })])
const byField = <S extends Schema.Top>(value: S) =>
  Schema.Struct(
    Object.fromEntries(claimFields.map((field) => [field, Schema.optionalKey(value)])) as unknown as {
      readonly [Field in ClaimField]: Schema.optionalKey<S>
    },
  )
const MapEntry = Schema.Struct({
  provider: Provider,
  issuer: Url,
  ...common,
  claims: byField(Source),
  production: Schema.optionalKey(byField(Schema.NonEmptyArray(text))),
})

const strict = { onExcessProperty: "error" } as const
const decodePreset = Schema.decodeUnknownResult(PresetEntry, strict)
const decodeMap = Schema.decodeUnknownResult(MapEntry, strict)

const describe = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) =>
    issue._tag === "MissingKey"
      ? "is missing"
      : issue._tag === "UnexpectedKey"
        ? "is not a field of an entry"
        : "has the wrong type",
  checkHook: ({ filter }) => `must be ${filter.annotations?.expected ?? "well-formed"}`,
})

/** The first fault of an entry: its field, and what is wrong. */
const faultOf = ({ issue }: Schema.SchemaError) => {
  const [first] = describe(issue).issues
  return `${(first?.path ?? []).map(String).join(".") || "the entry"} ${first?.message ?? "is malformed"}`
}

/** The first rule that a claim map breaks. */
const mapFault = ({ claims, production }: ClaimMap): string | undefined => {
  if (claims.repositoryId === undefined) return "claims.repositoryId is missing"
  if (claims.runId === undefined) return "claims.runId is missing"
  if (claims.ref === undefined && claims.branch === undefined) return "claims.ref is missing (or claims.branch)"
  if (claims.repository === undefined && (claims.owner === undefined || claims.name === undefined)) {
    return "claims.repository is missing (or claims.owner with claims.name)"
  }
  const unread = Object.keys(production ?? {}).find((field) => claims[field as keyof typeof claims] === undefined)
  return unread === undefined ? undefined : `production.${unread} needs claims.${unread}`
}

type Entry = Result.Result<CiProvider, string>

const parsePreset = (value: unknown, audiences: ReadonlyArray<string>): Entry =>
  Result.flatMap(Result.mapError(decodePreset(value), faultOf), (entry): Entry => {
    const preset = presetOf(entry.preset as (typeof presetNames)[number])
    const issuer = entry.issuer ?? preset.issuer
    if (issuer === undefined) return Result.fail(`issuer is missing; for example ${preset.example}`)
    if (!preset.isIssuer(issuer)) return Result.fail(`issuer must have the form of ${preset.example}`)
    if (preset.hasOwnAudience && entry.audiences === undefined) {
      return Result.fail("audiences is missing: copy the audience of this provider's tokens into it")
    }
    return Result.succeed({
      provider: entry.provider ?? entry.preset,
      issuer,
      audiences: entry.audiences ?? audiences,
      algorithms: entry.algorithms ?? ["RS256"],
      jwks: entry.jwks ?? (issuer === preset.issuer ? preset.jwks : undefined),
      read: preset.read(issuer),
      pinFault: preset.pinFault,
    })
  })

const parseMap = (value: unknown, audiences: ReadonlyArray<string>): Entry =>
  Result.flatMap(Result.mapError(decodeMap(value), faultOf), ({ claims, production, ...entry }): Entry => {
    const map: ClaimMap = { claims, production }
    const fault = mapFault(map)
    if (fault !== undefined) return Result.fail(fault)
    return Result.succeed({
      provider: entry.provider,
      issuer: entry.issuer,
      audiences: entry.audiences ?? audiences,
      algorithms: entry.algorithms ?? ["RS256"],
      jwks: entry.jwks,
      read: readByMap(map),
      pinFault: pinFaultOf(map),
    })
  })

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Parses the content of the file. Fails with the entry, its field and what is wrong. */
export const parseProviders = (
  content: string,
  audiences: ReadonlyArray<string>,
): Result.Result<ReadonlyArray<CiProvider>, string> => {
  let entries: unknown
  try {
    entries = JSON.parse(content)
  } catch (error) {
    return Result.fail(`the file is ${jsonFault(error)}`)
  }
  if (!Array.isArray(entries) || entries.length === 0 || entries.length > maxProviders) {
    return Result.fail(`the file must be a list of 1 to ${maxProviders} entries`)
  }
  const providers: Array<CiProvider> = []
  for (const [index, value] of entries.entries()) {
    const parse = isObject(value) && "preset" in value ? parsePreset : parseMap
    const entry: Entry = isObject(value) ? parse(value, audiences) : Result.fail("the entry must be an object")
    const at = `entry ${index + 1}`
    if (Result.isFailure(entry)) return Result.fail(`${at}: ${entry.failure}`)
    if (providers.some(({ issuer }) => issuer === entry.success.issuer)) {
      return Result.fail(`${at}: issuer must differ from the issuer of every earlier entry`)
    }
    providers.push(entry.success)
  }
  return Result.succeed(providers)
}

/** Reads and parses the file of OIDC_PROVIDERS. */
export const readProviders = (
  path: string,
  audiences: ReadonlyArray<string>,
): Result.Result<ReadonlyArray<CiProvider>, string> => {
  let content: string
  try {
    content = readFileSync(path, "utf8")
  } catch (fault) {
    return Result.fail(`the file cannot be read (${(fault as NodeJS.ErrnoException).code ?? "no code"})`)
  }
  return content.length > maxFileBytes
    ? Result.fail("the file is larger than 1 MiB")
    : parseProviders(content, audiences)
}
