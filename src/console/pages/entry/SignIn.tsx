import { useState } from "preact/hooks"
import { Notice } from "../../components/ErrorBox.tsx"
import { Field, Form, Input } from "../../components/Form.tsx"
import { type Me, signIn } from "../../client/session.tsx"
import { Brand } from "../../navigation/Brand.tsx"

export const SignIn = ({ note, onDone }: { readonly note: string; readonly onDone: (me: Me) => void }) => {
  const [credential, setCredential] = useState("")
  return (
    <main class="entry">
      <Brand />
      <div class="card card-body">
        <h1>Sign in</h1>
        {note !== "" && <Notice tone="calm">{note}</Notice>}
        <Form submit="Sign in" onSubmit={async () => onDone(await signIn(credential.trim()))}>
          <Field
            label="The administrator's token, or an API key"
            hint="It is exchanged for a session of 12 hours. The browser does not keep it."
          >
            <Input
              name="credential"
              type="password"
              autocomplete="current-password"
              required
              value={credential}
              onInput={setCredential}
            />
          </Field>
        </Form>
      </div>
    </main>
  )
}
