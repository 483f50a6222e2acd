import { Context } from "effect"

/** The org whose key calls the webhook interface, and that key. */
export class CurrentTenant extends Context.Service<CurrentTenant, { readonly orgId: string; readonly keyId: string }>()(
  "gatehouse/domain/Tenant/CurrentTenant",
) {}
