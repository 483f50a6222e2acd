import { Effect, Option, Redacted } from "effect"
import { Command } from "effect/cli"
import { failure, plain, print, usage } from "./output.ts"
import { askAt } from "./callOperation.ts"
import {
  checkAddress,
  type Connection,
  connection,
  kindOf,
  loadProfiles,
  profileNamed,
  saveProfiles,
} from "./connection.ts"
import { ProfileName, Url } from "./flags.ts"
import { readSecret } from "./secretInput.ts"

const defaultProfile = "default"
/** How many profiles the file holds. */
const maxProfiles = 100

/** Stores the address and the credential of a server, after the server has accepted them. */
export const login = Command.make(
  "login",
  {},
  Effect.fnUntraced(function* () {
    const url = yield* Url
    if (Option.isNone(url)) {
      return yield* usage(
        "The address of the service is missing. Set it: gatehouse login --url https://gatehouse.example.com",
      )
    }
    yield* checkAddress(url.value)
    const name = Option.getOrElse(yield* ProfileName, () => defaultProfile)
    if (name === "__proto__") return yield* usage("A profile cannot have the name __proto__")
    const stored = yield* loadProfiles
    const isNew = profileNamed(stored, name) === undefined
    if (isNew && Object.keys(stored.profiles).length >= maxProfiles) {
      return yield* failure(
        `Cannot add a profile: there are ${maxProfiles}, which is the limit. Remove one with gatehouse logout`,
      )
    }
    const token = yield* readSecret("The API key or the administrator's token (empty: none)", "GATEHOUSE_TOKEN")
    const { words } = yield* identify({ baseUrl: url.value, token, source: "the one that was entered" })
    const profile = { url: url.value, ...(token === undefined ? {} : { token: Redacted.value(token) }) }
    const file = yield* saveProfiles({ current: name, profiles: { ...stored.profiles, [name]: profile } })
    yield* print(JSON.stringify({ profile: name, url: url.value, file }), {
      out: "",
      note: `Logged in to ${plain(url.value)}: ${words}. The profile ${plain(name)} is stored in ${file}.`,
    })
  }),
).pipe(
  Command.withDescription(
    "Store the address in --url and a credential from GATEHOUSE_TOKEN, a prompt or standard input as a profile",
  ),
  Command.withExamples([{ command: "gatehouse login --url https://gatehouse.example.com --profile production" }]),
)

/** Removes a profile. */
export const logout = Command.make(
  "logout",
  {},
  Effect.fnUntraced(function* () {
    const stored = yield* loadProfiles
    const name = Option.getOrElse(yield* ProfileName, () => stored.current)
    if (profileNamed(stored, name) === undefined) {
      return yield* failure(`There is no profile "${plain(name)}"`)
    }
    const { [name]: _, ...profiles } = stored.profiles
    const file = yield* saveProfiles({ current: Object.keys(profiles)[0] ?? defaultProfile, profiles })
    yield* print(JSON.stringify({ profile: name, file }), {
      out: "",
      note: `The profile ${plain(name)} is removed from ${file}. Its credential stays valid: delete the key if nobody needs it.`,
    })
  }),
).pipe(Command.withDescription("Remove a profile and its credential from this machine"))

/** Asks the service whose credential this is. Fails if the service refuses it. */
const identify = Effect.fnUntraced(function* (at: Connection) {
  const { token } = at
  if (token !== undefined && kindOf(token) === "key") {
    const { keyId, orgId, projectId } = (yield* askAt(at, (gatehouse) =>
      gatehouse.keys.validate({ payload: { key: Redacted.value(token) } }),
    )).body
    const owner = projectId === "" ? `the org ${orgId}` : `the project ${projectId} of the org ${orgId}`
    return { words: `a key of ${owner}`, facts: { kind: "key", keyId, orgId, projectId } }
  }
  // Only the administrator has such a token; without one, only open mode answers.
  yield* askAt(at, (gatehouse) => gatehouse.orgs.list({ query: { limit: 1 } }))
  return token === undefined
    ? { words: "open mode, without a credential", facts: { kind: "anonymous" } }
    : { words: "the administrator", facts: { kind: "administrator" } }
})

/** Shows the server and whose credential is used. */
export const whoami = Command.make(
  "whoami",
  {},
  Effect.fnUntraced(function* () {
    const at = yield* connection
    const { facts, words } = yield* identify(at)
    yield* print(JSON.stringify({ url: at.baseUrl, ...facts }), {
      out: `${words} at ${plain(at.baseUrl)}`,
      note: at.token === undefined ? undefined : `The credential is ${at.source}.`,
    })
  }),
).pipe(Command.withDescription("Show which server and whose credential the commands use"))
