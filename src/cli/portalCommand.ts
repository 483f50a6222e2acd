import { tenantGroup } from "./flags.ts"
import { op } from "./operation.ts"
import { columns } from "./output.ts"

export const portal = tenantGroup("portal", "Portal links", [
  op("portal.link", {
    about: "Make a link that opens the portal, once",
    show: ({ expires_at, link_id, url }) => ({
      out: url,
      note: `The link ${link_id} can be opened once, until ${expires_at.toJSON()}.`,
    }),
  }),
  op("portal.listLinks", {
    name: "links",
    show: ({ links }) =>
      columns(links, {
        LINK: "link_id",
        STATE: "state",
        "MADE BY": ({ made_by, person }) => person?.name ?? person?.email ?? made_by,
        WEBHOOKS: "webhooks",
        "KEYS OF": ({ keys }) => keys?.external_id,
        ENDS: "expires_at",
      }),
  }),
  op("portal.revokeLink", { name: "revoke", args: { link: "link_id" } }),
])
