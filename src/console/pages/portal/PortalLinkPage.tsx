import { useState } from "preact/hooks"
import { Code } from "../../components/Code.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { Field, Form, Select } from "../../components/Form.tsx"
import { Card, Page } from "../../components/Page.tsx"
import { Time } from "../../components/Time.tsx"
import { useCall } from "../../client/queries.ts"
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
            hint="Once, by the first person who opens it. The session lasts 12 hours, and ends with the token or key that you are signed in with."
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
    </Page>
  )
}
