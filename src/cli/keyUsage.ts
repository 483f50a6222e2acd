import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { Timestamp } from "../domain/Schemas.ts"
import { call } from "./call.ts"
import { given } from "./flags.ts"
import { orgFlag, resolveOrg } from "./orgs.ts"
import { table } from "./output.ts"

/** Shows the validations of a key, or of all keys of an org. */
export const usage = Command.make(
  "usage",
  {
    id: Argument.String("key-id").pipe(
      Argument.withDescription("The id of the key (default: all keys of the org)"),
      Argument.optional,
    ),
    org: orgFlag,
    from: Flag.String("from").pipe(
      Flag.withDescription("The start, for example 2026-11-01T00:00:00Z (default: 24 hours ago)"),
      Flag.withSchema(Timestamp),
      Flag.optional,
    ),
    to: Flag.String("to").pipe(
      Flag.withDescription("The end, which is not included (default: now)"),
      Flag.withSchema(Timestamp),
      Flag.optional,
    ),
    every: Flag.Literals("every", ["hour", "day"]).pipe(
      Flag.withDescription("The length of an interval (default: hour)"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ every, from, id, org, to }) {
    const orgId = yield* resolveOrg(org)
    const query = given({ from, to, every })
    yield* call(
      (gatehouse) =>
        Option.isSome(id)
          ? gatehouse.keys.usage({ params: { orgId, id: id.value }, query })
          : gatehouse.keys.orgUsage({ params: { orgId }, query }),
      ({ usage: intervals }) => ({
        out: table(
          ["FROM", "VALID", "FORBIDDEN", "LIMITED", "COST"],
          intervals.map(({ at, cost, forbidden, limited, valid }) => [at, valid, forbidden, limited, cost]),
        ),
        note: "",
      }),
    )
  }),
).pipe(
  Command.withDescription("Show how often keys were validated, by hour or day"),
  Command.withExamples([{ command: "gatehouse keys usage 01KAHBMKZ3D2X7S5QN8W4V6R9T --every day" }]),
)
