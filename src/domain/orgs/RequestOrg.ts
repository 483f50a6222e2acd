import { Context } from "effect"

/** The owner of requests without an org: the administrator's, and look-ups of keys. */
export const noOrg = ""

/** The org whose request the work at hand is, so that orgs share the database; `undefined` for background work. */
export const RequestOrg = Context.Reference<string | undefined>("gatehouse/domain/RequestOrg", {
  defaultValue: () => undefined,
})
