import { useState } from "preact/hooks"
import { Code } from "../../components/Code.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { Field, Form, Select } from "../../components/Form.tsx"
import { Card, Page } from "../../components/Page.tsx"
import { Time } from "../../components/Time.tsx"
import { AskButton } from "../../components/Dialog.tsx"
import { Table } from "../../components/Table.tsx"
import { useCall, usePages } from "../../client/queries.ts"
import type { ResponseBody } from "../../client/Operations.ts"

const lifetimes = [
  { value: "3600", label: "1 hour" },
  { value: "86400", label: "1 day" },
  { value: "604800", label: "7 days" },
]

/** Makes a link that opens the webhooks of the org for its own people. */
export default () => {
  const call = useCall()
  const [seconds, setSeconds] = useState("86400")
  const [link, setLink] = useState<ResponseBody<"portal.link">>()
  return (
    <Page
      title="Portal link"
      intro="Opens this console for the webhooks of this org alone: endpoints, deliveries and events, with tests and resending. No keys, no projects, no jobs."
    >
      <Card title="Make a link">
        <Form
          submit="Make a link"
          onSubmit={async () => setLink(await call("portal.link", { expires_in_seconds: Number(seconds) }))}
        >
          <Field
            label="Can be opened for"
            hint="Once, by the first person who opens it. The session lasts 12 hours. Both end when you sign out, or your session ends."
          >
            <Select value={seconds} onInput={setSeconds} options={lifetimes} />
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
          { title: "Made by", cell: ({ made_by, person }) => person?.name ?? person?.email ?? made_by },
          { title: "State", align: "fit", cell: ({ state }) => state },
          {
            title: "For",
            cell: ({ keys, webhooks }) =>
              [...(webhooks ? ["webhooks"] : []), ...(keys === null ? [] : [`keys of ${keys.externalId}`])].join(", "),
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
