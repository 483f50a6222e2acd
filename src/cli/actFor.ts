import { Context, Option } from "effect"
import { Command, Flag } from "effect/cli"

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
