import { Config, Effect, Option, Redacted } from "effect"
import { keyPrefix } from "../domain/keys/ApiKey.ts"
import { CommandFailed, usage } from "./CommandFailed.ts"
import { ProfileName, Url } from "./flags.ts"
import { plain } from "./output.ts"
import { loadProfiles, profileNamed, tokenOf } from "./profiles.ts"

const defaultUrl = "http://127.0.0.1:3000"

/** The server that a command calls, and its credential. */
export interface Connection {
  readonly baseUrl: string
  readonly token: Redacted.Redacted<string> | undefined
  /** Where the credential comes from, in words. */
  readonly source: string
}

/** Whether a text is the address of a server. */
export const checkAddress = (url: string) =>
  URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)
    ? Effect.void
    : usage(`"${plain(url)}" is not an http or https URL. Set --url or GATEHOUSE_URL to the address of the service`)

/** GATEHOUSE_TOKEN: an administrator's token or an API key. No argument, because arguments appear in the process list. */
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
    return yield* new CommandFailed({
      message: `There is no profile "${plain(name.value)}". Create it with gatehouse login --profile ${plain(name.value)}`,
    })
  }
  return { profile, name: Option.getOrElse(name, () => profiles.current) }
})

/**
 * The server and the credential: `--url` and GATEHOUSE_TOKEN, else those of the profile. A profile's token goes only to the
 * profile's server.
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
  token && (Redacted.value(token).startsWith(keyPrefix) ? "key" : "token")
