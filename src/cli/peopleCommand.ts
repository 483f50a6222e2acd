import { op } from "./operation.ts"
import { columns } from "./output.ts"

/** Shows who may sign in to the console. */
export const people = op("sessions.people", {
  about: "List which groups of your company's identity provider have which role",
  show: ({ issuer, rules }) => ({
    out: columns(rules, {
      CLAIM: "claim",
      VALUE: "value",
      ROLE: "role",
      ORG: ({ orgId }) => orgId ?? "every org",
    }),
    note:
      issuer === null ? "People do not sign in with their own identity: set CONSOLE_OIDC_ISSUER." : `Issuer: ${issuer}`,
  }),
})
