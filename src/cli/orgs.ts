import { Effect, Option } from "effect"
import { Flag } from "effect/cli"
import { ask } from "./call.ts"
import { usage } from "./CommandFailed.ts"
import { plain } from "./output.ts"

/** The org that a command is about. */
export const orgFlag = Flag.String("org").pipe(
  Flag.withDescription("The org's id; not needed while there is one org"),
  Flag.optional,
)

/** The org that is named, or the only one that the caller reaches. */
export const theOrg = Effect.fnUntraced(function* (org: Option.Option<string>) {
  if (Option.isSome(org)) return org.value
  const { orgs } = (yield* ask((gatehouse) => gatehouse.orgs.list({ query: { limit: 100 } }))).answer
  if (orgs.length === 1) return orgs[0]!.orgId
  return yield* usage(
    orgs.length === 0
      ? "There is no org yet; gatehouse projects create docs makes the first"
      : `There are several orgs; say which with --org: ${orgs.map(({ name, orgId }) => `${orgId} (${plain(name)})`).join(", ")}`,
  )
})
