import { Context } from "effect"

/** The org whose key calls the webhook interface. */
export class CurrentTenant extends Context.Service<CurrentTenant, { readonly orgId: string }>()(
  "gatehouse/domain/Tenant/CurrentTenant",
) {}
