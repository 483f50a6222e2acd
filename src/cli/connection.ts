import { Config, Effect, Option, Redacted, Schema } from "effect"
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { isMeantAsKey } from "../domain/keys/ApiKey.ts"
import { hasCredentials } from "../sdk/post.ts"
import { CommandFailed, failure, plain, usage } from "./output.ts"
import { ProfileName, Url } from "./flags.ts"

const defaultUrl = "http://127.0.0.1:3000"

/** The server that a command calls, and its credential. */
export interface Connection {
  readonly baseUrl: string
  readonly token: Redacted.Redacted<string> | undefined
  /** Where the credential comes from, in words. */
  readonly source: string
}

/** Whether a text is the address of a server. */
export const checkAddress = (url: string) => {
  if (hasCredentials(url)) return usage("An address must have no user name or password. Give it without them")
  return URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)
    ? Effect.void
    : usage(`"${plain(url)}" is not an http or https URL. Set --url or GATEHOUSE_URL to the address of the service`)
}

/**
 * GATEHOUSE_TOKEN: an administrator's token or an API key. No argument, because arguments appear in the process list.
 */
const tokenVariable = Effect.map(Effect.orDie(Config.option(Config.Redacted("GATEHOUSE_TOKEN"))), (token) =>
  Option.getOrUndefined(Option.filter(token, (one) => Redacted.value(one) !== "")),
)

/** The profile that `--profile` names, else that of the last login. */
const chosenProfile = Effect.gen(function* () {
  const profiles = yield* loadProfiles
  const name = yield* ProfileName
  const profile = profileNamed(
    profiles,
    Option.getOrElse(name, () => profiles.current),
  )
  if (profile === undefined && Option.isSome(name)) {
    return yield* failure(
      `There is no profile "${plain(name.value)}". Create it with gatehouse login --profile ${plain(name.value)}`,
    )
  }
  return { profile, name: Option.getOrElse(name, () => profiles.current) }
})

/**
 * The server and the credential: `--url` and GATEHOUSE_TOKEN, else those of the profile. A profile's token goes only to
 * the profile's server.
 */
export const connection: Effect.Effect<Connection, CommandFailed, Effect.Services<typeof chosenProfile>> = Effect.gen(
  function* () {
    const url = yield* Url
    const { name, profile } = yield* chosenProfile
    const baseUrl = Option.getOrElse(url, () => profile?.url ?? defaultUrl)
    yield* checkAddress(baseUrl)
    const variable = yield* tokenVariable
    if (variable !== undefined) return { baseUrl, token: variable, source: "the value of GATEHOUSE_TOKEN" }
    const isOfProfile = profile !== undefined && new URL(profile.url).origin === new URL(baseUrl).origin
    return {
      baseUrl,
      token: isOfProfile ? tokenOf(profile) : undefined,
      source: `that of the profile ${plain(name)}`,
    }
  },
)

export const kindOf = (token: Redacted.Redacted<string> | undefined) =>
  token && (isMeantAsKey(Redacted.value(token)) ? "key" : "token")

/** A server and the credential for it, as `login` stores them. */
const Profile = Schema.Struct({ url: Schema.String, token: Schema.optionalKey(Schema.String) })
type Profile = typeof Profile.Type

const Profiles = Schema.fromJsonString(
  Schema.Struct({ current: Schema.String, profiles: Schema.Record(Schema.String, Profile) }),
)
type Profiles = typeof Profiles.Type

const none: Profiles = { current: "default", profiles: {} }

/** The file of the profiles, in the configuration folder of the user; `undefined` without a home folder. */
const profilesFile = Effect.gen(function* () {
  const read = (name: string) => Effect.orDie(Config.option(Config.String(name)))
  const folder = yield* read("XDG_CONFIG_HOME")
  if (Option.isSome(folder) && folder.value !== "") return join(folder.value, "gatehouse", "profiles.json")
  const home = yield* read("HOME")
  return Option.isSome(home) ? join(home.value, ".config", "gatehouse", "profiles.json") : undefined
})

const cannot = (verb: string, file: string, error: unknown) =>
  failure(`Cannot ${verb} ${file} (${(error as NodeJS.ErrnoException).code}). Correct its permissions`)

/** The stored profiles; none if there is no file. Fails if the file is not one of `login`. */
export const loadProfiles = Effect.gen(function* () {
  const file = yield* profilesFile
  if (file === undefined) return none
  const text = yield* Effect.try({
    try: () => (existsSync(file) ? readFileSync(file, "utf8") : undefined),
    catch: (error) => cannot("read", file, error),
  })
  if (text === undefined) return none
  return yield* Effect.mapError(Schema.decodeUnknownEffect(Profiles)(text), () =>
    failure(`${file} cannot be read. Delete it and run gatehouse login again`),
  )
})

/** Stores the profiles. Only the user can read the file. */
export const saveProfiles = Effect.fnUntraced(function* (profiles: Profiles) {
  const file = yield* profilesFile
  if (file === undefined) {
    return yield* failure("There is no folder for the profile. Set HOME or XDG_CONFIG_HOME")
  }
  const next = `${file}.${process.pid}`
  yield* Effect.try({
    try: () => {
      mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
      writeFileSync(next, `${JSON.stringify(profiles, null, 2)}\n`, { mode: 0o600, flag: "wx" })
      renameSync(next, file)
    },
    catch: (error) => cannot("write", file, error),
  }).pipe(Effect.onError(() => Effect.sync(() => rmSync(next, { force: true }))))
  return file
})

/** A name as it is looked up: `constructor` is no profile of an object's prototype. */
export const profileNamed = ({ profiles }: Profiles, name: string): Profile | undefined =>
  Object.hasOwn(profiles, name) ? profiles[name] : undefined

const tokenOf = (profile: Profile | undefined) =>
  profile?.token === undefined ? undefined : Redacted.make(profile.token)
