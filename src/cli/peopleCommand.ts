import { Command } from "effect/cli"
import { call } from "./call.ts"
import { table } from "./output.ts"

/** Shows who may sign in to the console. */
export const people = Command.make("people", {}, () =>
  call(
    (gatehouse) => gatehouse.sessions.people(),
    ({ issuer, rules }) => ({
      out: table(
        ["CLAIM", "VALUE", "ROLE", "ORG"],
        rules.map((one) => [one.claim, one.value, one.role, one.orgId ?? "every org"]),
      ),
      note:
        issuer === null
          ? "People do not sign in with their own identity: set CONSOLE_OIDC_ISSUER."
          : `Issuer: ${issuer}`,
    }),
  ),
).pipe(Command.withDescription("List which groups of your company's identity provider have which role"))
