import { Config, Context, Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { Timestamp } from "../domain/Schemas.ts"

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
    json: Flag.Boolean("json").pipe(
      Flag.withDescription("Print the exact answer of the service as one JSON document"),
      Flag.withDefault(false),
    ),
  }),
)

/** The address in `--url` or GATEHOUSE_URL. */
export const Url = Effect.map(root, ({ url }) => Option.filter(url, (text) => text !== ""))

/** The name in `--profile` or GATEHOUSE_PROFILE. */
export const ProfileName = Effect.map(root, ({ profile }) => Option.filter(profile, (text) => text !== ""))

/** Whether standard output is one JSON document instead of text. */
export const Json = Effect.map(root, ({ json }) => json)

/** A flag's text as any JSON value. */
export const JsonText = Schema.fromJsonString(Schema.Unknown)

/** The flags of a paged list. */
export const page = {
  limit: Flag.Int("limit").pipe(
    Flag.withDescription("The maximum number of entries, 1 to 100 (default: 50)"),
    Flag.withDefault(50),
  ),
  cursor: Flag.String("cursor").pipe(Flag.withDescription("Continue after the last list"), Flag.optional),
  all: Flag.Boolean("all").pipe(Flag.withDescription("List everything, page by page"), Flag.withDefault(false)),
}

/** The values of `page`. */
export interface PageFlags {
  readonly limit: number
  readonly cursor: Option.Option<string>
  readonly all: boolean
}

/** The flags of a list that is complete by default. */
export const wholeList = {
  limit: Flag.Int("limit").pipe(
    Flag.withDescription("The maximum number of entries, 1 to 1000 (default: 1000)"),
    Flag.optional,
  ),
  cursor: page.cursor,
}

/** A time, such as 2026-11-20T17:00:00Z. */
export const time = (name: string) => Flag.String(name).pipe(Flag.withSchema(Timestamp))

/** The values of the flags that were given. A flag that was not given is absent, not `undefined`. */
export const given = <A extends Readonly<Record<string, Option.Option<unknown>>>>(flags: A) =>
  Object.fromEntries(
    Object.entries(flags).flatMap(([name, value]) => (Option.isSome(value) ? [[name, value.value]] : [])),
  ) as { readonly [K in keyof A]?: Option.Option.Value<A[K]> }

/** The org that the administrator acts for under `/v1`. */
export const ActFor = Context.Reference<Option.Option<string>>("gatehouse/cli/ActFor", { defaultValue: Option.none })

/** The flag of the commands under `/v1`. An API key has its org. */
export const actForFlag = {
  org: Flag.String("org").pipe(
    Flag.withDescription("With the administrator's token: the id of the org to act for"),
    Flag.optional,
  ),
}

/** Makes the requests of a group of commands for the org in `--org`. */
export const actFor = Command.provideSync(ActFor, ({ org }: { readonly org: Option.Option<string> }) => org)
