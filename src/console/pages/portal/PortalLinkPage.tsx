import { useState } from "preact/hooks"
import { Code } from "../../components/Code.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { Check, Field, Form, Input, Lines, linesOf, Select } from "../../components/Form.tsx"
import { Card, Page } from "../../components/Page.tsx"
import { Time } from "../../components/Time.tsx"
import { AskButton } from "../../components/Dialog.tsx"
import { Table } from "../../components/Table.tsx"
import { useCall, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { actorText } from "../audit/AuditPage.tsx"
import { useUsedPermissions } from "../keys/keySettings.tsx"
import type { ResponseBody } from "../../client/Operations.ts"

const lifetimes = [
  { value: "300", label: "5 minutes" },
  { value: "3600", label: "1 hour" },
  { value: "86400", label: "1 day" },
  { value: "604800", label: "7 days" },
]

/** Makes a link that opens the webhooks of the org for its own people. */
export default () => {
  const call = useCall()
  const may = useMay()
  const known = useUsedPermissions()
  const [texts, setTexts] = useState({ seconds: "86400", holder: "", permissions: "", max: "5", project: "" })
  const [hasWebhooks, setWebhooks] = useState(true)
  const [hasKeys, setKeys] = useState(false)
  const [link, setLink] = useState<ResponseBody<"portal.link">>()
  const control = (name: keyof typeof texts) => ({
    value: texts[name],
    onInput: (text: string) => setTexts({ ...texts, [name]: text }),
    autocomplete: "off",
  })
  const make = async () => {
    const keys = {
      external_id: texts.holder,
      permissions: linesOf(texts.permissions),
      max_keys: Number(texts.max),
      ...(texts.project === "" ? {} : { project_id: texts.project }),
    }
    const rights = { webhooks: hasWebhooks, ...(hasKeys ? { keys } : {}) }
    setLink(await call("portal.link", { expires_in_seconds: Number(texts.seconds), ...rights }))
  }
  return (
    <Page title="Portal link" intro="Opens this console for people of this org, with what you choose alone.">
      <Card title="Make a link">
        <Form
          submit="Make a link"
          isReady={hasWebhooks || hasKeys}
          why="Choose webhooks, keys, or both."
          onSubmit={make}
        >
          <Check isChecked={hasWebhooks} onChange={setWebhooks}>
            Webhooks: all endpoints, deliveries and events of the org, with tests and resending
          </Check>
          {may("keys.createForOrg") && (
            <Check isChecked={hasKeys} onChange={setKeys}>
              API keys of one holder: make, rename, rotate and delete them
            </Check>
          )}
          {hasKeys && (
            <>
              <div class="grid-fields">
                <Field label="Holder" hint="Your own id of them: the external id of their keys.">
                  <Input {...control("holder")} required maxLength={255} spellcheck={false} />
                </Field>
                <Field label="Keys at most">
                  <Input type="number" min={1} max={100} {...control("max")} required />
                </Field>
                <Field label="Project" hint="The id of the project of new keys. Empty: keys of the org.">
                  <Input {...control("project")} spellcheck={false} />
                </Field>
              </div>
              <Lines
                label="Permissions"
                hint="What new keys may do at most, one on each line, up to 20. Empty: nothing."
                {...control("permissions")}
                {...{ known, knownAs: "In use:" }}
              />
            </>
          )}
          <Field
            label="Can be opened for"
            hint="Once, by the first person who opens it. The session lasts 12 hours. Both end when you sign out, or your session ends."
          >
            <Select {...control("seconds")} options={lifetimes} />
          </Field>
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
    <Card title="Links" isPadded={false}>
      <Table
        caption="Links"
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
                      `up to ${keys.maxKeys} keys of ${keys.externalId}: ${keys.permissions.join(", ") || "no permission"}`,
                    ]),
              ].join(", "),
          },
          { title: "Ends", align: "fit", cell: ({ expires_at }) => <Time at={expires_at} isRelative /> },
          {
            title: "",
            align: "fit",
            cell: ({ link_id }) => (
              <AskButton
                {...{ look: "danger", icon: "trash", label: `Revoke the link ${link_id}`, isSmall: true }}
                isDangerous
                title="Revoke this link?"
                submit="Revoke link"
                onConfirm={() => call("portal.revokeLink", { link_id })}
              >
                <p>It cannot be opened any more, and the portal that it opened ends at once.</p>
              </AskButton>
            ),
          },
        ]}
      />
    </Card>
  )
}
