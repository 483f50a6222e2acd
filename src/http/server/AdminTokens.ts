import { Context, type Redacted } from "effect"

/** The administrator's tokens (`undefined` in open mode) and the BASE_URL of the service. */
export class AdminTokens extends Context.Service<
  AdminTokens,
  { readonly tokens: ReadonlyArray<Redacted.Redacted<string>> | undefined; readonly baseUrl: string }
>()("gatehouse/http/Authorization/AdminTokens") {}
