import { Redacted } from "effect"
import type { PortalLink } from "../../domain/sessions/Sessions.ts"
import { AdminTokens } from "./AdminTokens.ts"

/** The answer with a portal link. The token is in the fragment, which browsers send to no server. */
export const portalUrl = ({ expiresAt, token }: PortalLink) =>
  AdminTokens.useSync(({ baseUrl }) => ({
    success: true as const,
    url: `${baseUrl}/console/portal#${Redacted.value(token)}`,
    expires_at: expiresAt,
  }))
