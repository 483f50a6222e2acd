import { useState } from "preact/hooks"
import { Code } from "../../components/Code.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { choice, flag, list, number, optional, text, useFields } from "../../components/Fields.tsx"
import { Form, linesOf } from "../../components/Form.tsx"
import { Card, Page } from "../../components/Page.tsx"
import { Time } from "../../components/Time.tsx"
import { DeleteButton } from "../../components/Dialog.tsx"
import { ListCard } from "../../components/Table.tsx"
import { useCall, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { actorText } from "../audit/AuditPage.tsx"
import { useUsedPermissions } from "../keys/keySettings.tsx"
import type { ResponseBody } from "../../client/Operations.ts"

const settings = {
  webhooks: { ...flag, label: "Webhooks: all endpoints, deliveries and events of the org, with tests and resending" },
  keys: { ...flag, label: "API keys of one holder: make, rename, rotate and delete them" },
  external_id: {
    ...text,
    label: "Holder",
    hint: "Your own id of them: the external id of their keys.",
    required: true,
    maxLength: 255,
    spellcheck: false,
  },
  max_keys: { ...number, label: "Keys at most", min: 1, max: 100, required: true },
  project_id: {
    ...optional,
    label: "Project",
    hint: "The id of the project of new keys. Empty: keys of the org.",
    spellcheck: false,
  },
  permissions: {
    ...list,
    label: "Permissions",
    hint: "What new keys may do at most, one on each line, up to 20. Empty: nothing.",
    knownAs: "In use:",
    write: linesOf,
  },
  seconds: {
    ...choice({ "300": "5 minutes", "3600": "1 hour", "86400": "1 day", "604800": "7 days" }),
    label: "Can be opened for",
    hint: "Once, by the first person who opens it. The session lasts 12 hours. Both end when you sign out, or your session ends.",
  },
}

/** Makes a link that opens the webhooks of the org for its own people. */
export default () => {
  const call = useCall()
  const may = useMay()
  const known = useUsedPermissions()
  const { field, fields, values } = useFields(settings, { webhooks: true, max_keys: 5, seconds: "86400" })
  const [link, setLink] = useState<ResponseBody<"portal.link">>()
  const make = async () => {
    const { external_id, max_keys, permissions, project_id, seconds, webhooks } = values
    const keys = { external_id, permissions, max_keys: Number(max_keys), ...(project_id !== null && { project_id }) }
    const rights = { webhooks, ...(values.keys && { keys }) }
    setLink(await call("portal.link", { expires_in_seconds: Number(seconds), ...rights }))
  }
  return (
    <Page title="Portal link" intro="Opens this console for people of this org, with what you choose alone.">
      <Card title="Make a link">
        <Form
          submit="Make a link"
          isReady={values.webhooks || values.keys}
          why="Choose webhooks, keys, or both."
          onSubmit={make}
        >
          {field("webhooks")}
          {may("keys.createForOrg") && field("keys")}
          {values.keys && (
            <>
              <div class="grid-fields">{fields("external_id", "max_keys", "project_id")}</div>
              {field("permissions", { known })}
            </>
          )}
          {field("seconds")}
        </Form>
        {link !== undefined && (
          <>
            <Notice tone="good">
              <strong>Copy the link now: it is shown once.</strong>
              <span>
                Send it to one person, by a channel that you trust. It ends <Time at={link.expires_at} isRelative />.
              </span>
            </Notice>
            <Code title="Link" text={link.url} />
          </>
        )}
      </Card>
      <Links />
    </Page>
  )
}

/** The links of the org, and the portals that they opened. */
const Links = () => {
  const call = useCall()
  const pages = usePages("portal.listLinks", { limit: 50 }, ({ links }) => links, { refetchMillis: 30_000 })
  return (
    <ListCard
      title="Links"
      {...pages}
      rowKey={({ link_id }) => link_id}
      empty={<p class="card-body quiet">None. A link leaves this list within an hour of its end.</p>}
      columns={[
        { title: "Made by", cell: ({ made_by, person }) => actorText({ actor: made_by, person }, (id) => id) },
        { title: "State", align: "fit", cell: ({ state }) => state },
        {
          title: "Opens",
          cell: ({ keys, webhooks }) =>
            [
              ...(webhooks ? ["webhooks"] : []),
              ...(keys === null
                ? []
                : [
                    `up to ${keys.max_keys} keys of ${keys.external_id}: ${keys.permissions.join(", ") || "no permission"}`,
                  ]),
            ].join(", "),
        },
        { title: "Ends", align: "fit", cell: ({ expires_at }) => <Time at={expires_at} isRelative /> },
        {
          title: "",
          align: "fit",
          cell: ({ link_id }) => (
            <DeleteButton
              label={`Revoke the link ${link_id}`}
              isSmall
              title="Revoke this link?"
              submit="Revoke link"
              onConfirm={() => call("portal.revokeLink", { link_id })}
            >
              <p>It cannot be opened any more, and the portal that it opened ends at once.</p>
            </DeleteButton>
          ),
        },
      ]}
    />
  )
}
