import { Effect, Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Sessions } from "../../domain/sessions/Sessions.ts"
import { Api } from "../api/Api.ts"
import { portalUrl } from "../server/portalUrl.ts"
import { clearSessionCookie, openedPortal, setSessionCookie, whoAmI } from "../server/sessionAnswers.ts"

const sessions = HttpApiBuilder.group(Api, "sessions", (handlers) =>
  Effect.map(Sessions, (sessions) =>
    handlers.handleAll({
      create: () => sessions.signIn.pipe(Effect.tap(setSessionCookie), Effect.flatMap(whoAmI)),
      current: () => whoAmI(),
      // First, so that the browser forgets it also when the database cannot end it.
      remove: () => clearSessionCookie.pipe(Effect.andThen(sessions.signOut), Effect.as({ signedOut: true as const })),
      openPortal: ({ payload }) => openedPortal(payload.token),
    }),
  ),
)

const portal = HttpApiBuilder.group(Api, "portal", (handlers) =>
  Effect.map(Sessions, (sessions) =>
    handlers.handleAll({
      link: ({ payload }) => Effect.flatMap(sessions.createLink(payload?.expires_in_seconds), portalUrl),
    }),
  ),
)

export const layer = Layer.merge(sessions, portal)
