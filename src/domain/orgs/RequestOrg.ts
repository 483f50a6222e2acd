import { Context } from "effect"

/** The owner of requests without an org, such as the administrator's and the lookups of keys. */
export const noOrg = ""

/** The org of the current request; `undefined` for background work. Orgs share the database by it. */
export const RequestOrg = Context.Reference<string | undefined>("gatehouse/domain/RequestOrg", {
  defaultValue: () => undefined,
})
