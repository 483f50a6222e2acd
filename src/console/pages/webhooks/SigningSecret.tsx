import { useState } from "preact/hooks"
import { useCall } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button, CopyButton } from "../../components/Button.tsx"
import { AskButton, Dialog } from "../../components/Dialog.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { Field, Select } from "../../components/Form.tsx"
import { Card } from "../../components/Page.tsx"
import { newSecret } from "./endpoints.ts"
import { type SampleLanguage, secretVariable, verifySamples } from "./verifySamples.ts"

const languages = Object.keys(verifySamples).map((name) => ({ value: name, label: name }))

/** Code that verifies webhooks, in the language of the reader. The place of the secret is marked. */
const VerifySample = () => {
  const [language, setLanguage] = useState<SampleLanguage>("JavaScript")
  const text = verifySamples[language]
  const [first = "", ...rest] = text.split(secretVariable)
  return (
    <div class="stack tight">
      <div class="row between">
        <Field label="Verify webhooks in">
          <Select value={language} onInput={(value) => setLanguage(value as SampleLanguage)} options={languages} />
        </Field>
        <CopyButton text={text} label="Copy the code" />
      </div>
      <pre class="tall" tabIndex={0} role="region" aria-label={`Code that verifies webhooks in ${language}`}>
        {first}
        {rest.map((part) => (
          <>
            <mark>{secretVariable}</mark>
            {part}
          </>
        ))}
      </pre>
      <span class="quiet small">
        The signing secret is in the variable <mark>{secretVariable}</mark> of your receiver's environment, never in its
        code.
      </span>
    </div>
  )
}

/** Shows a secret that was just stored, once: nobody can read it again. */
export const ShowSecret = ({ onClose, secret }: { readonly secret: string; readonly onClose: () => void }) => (
  <Dialog title="Copy the signing secret" isWide isEasyToClose={false} onClose={onClose}>
    <Notice tone="good">
      <strong>This secret is shown once.</strong>
      <span>Put it into your receiver, which verifies with it that a webhook is genuine.</span>
    </Notice>
    <div class="secret">
      <code>{secret}</code>
      <CopyButton text={secret} label="Copy the secret" />
    </div>
    {secret.startsWith("whsec_") && <VerifySample />}
    <div class="actions">
      <Button look="primary" onClick={onClose}>
        I have copied it
      </Button>
    </div>
  </Dialog>
)

/** How to verify the webhooks of an endpoint, and a button for a new secret. */
export const SigningSecret = ({ id }: { readonly id: string }) => {
  const call = useCall()
  const may = useMay()
  const [secret, setSecret] = useState<string>()
  const rotate = async () => {
    const made = newSecret()
    await call("webhooks.update", { id, signing_secret: made })
    setSecret(made)
  }
  return (
    <Card
      title="Signing secret"
      actions={
        may("webhooks.update") && (
          <AskButton text="Rotate secret" title="Rotate the signing secret?" submit="Rotate secret" onConfirm={rotate}>
            <p>A new secret is made, and shown once. For 24 hours, the old one signs beside it.</p>
            <p>Change it in your receiver within that time.</p>
          </AskButton>
        )
      }
    >
      <VerifySample />
      {secret !== undefined && <ShowSecret secret={secret} onClose={() => setSecret(undefined)} />}
    </Card>
  )
}
