import { Argument, Command } from "effect/cli"
import { CreatePortalLink } from "../domain/sessions/Portal.ts"
import { call, callPages } from "./call.ts"
import { actFor, actForFlag, given, page, payloadFlags } from "./flags.ts"
import { said, table } from "./output.ts"

const link = Command.make("link", payloadFlags(CreatePortalLink.fields), (flags) =>
  call(
    (gatehouse) => gatehouse.portal.link({ payload: given(flags) }),
    ({ expires_at, link_id, url }) => ({
      out: url,
      note: `The link ${link_id} can be opened once, until ${expires_at.toJSON()}.`,
    }),
  ),
).pipe(Command.withDescription("Make a link that opens the portal, once"))

const links = Command.make("links", page, (flags) =>
  callPages(
    flags,
    (gatehouse, payload) => gatehouse.portal.listLinks({ payload }),
    ({ links, next_cursor }) => ({
      table: table(
        ["LINK", "STATE", "MADE BY", "WEBHOOKS", "KEYS OF", "ENDS"],
        links.map((one) => [
          one.link_id,
          one.state,
          one.person?.name ?? one.person?.email ?? one.made_by,
          one.webhooks,
          one.keys?.externalId,
          one.expires_at,
        ]),
      ),
      next: next_cursor,
    }),
  ),
).pipe(Command.withDescription("List portal links and the portals that they opened"))

const revoke = Command.make(
  "revoke",
  { link_id: Argument.String("link").pipe(Argument.withDescription("The id of the link")) },
  (payload) => call((gatehouse) => gatehouse.portal.revokeLink({ payload }), said),
).pipe(Command.withDescription("End a portal link, and the portal that it opened"))

/** Links that open the portal of an org. */
export const portal = Command.make("portal").pipe(
  Command.withDescription("Portal links: of the API key, or of --org"),
  Command.withSharedFlags(actForFlag),
  Command.withSubcommands([link, links, revoke]),
  actFor,
)
