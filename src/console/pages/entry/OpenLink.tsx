import { Form } from "../../components/Form.tsx"
import { type Me, openPortal } from "../../client/session.tsx"
import { Brand } from "../../navigation/Brand.tsx"

/** A link is opened by a button, because mail scanners follow links. */
export const OpenLink = ({ onDone, token }: { readonly onDone: (me: Me) => void; readonly token: string }) => (
  <main class="entry">
    <Brand />
    <div class="card card-body">
      <h1>Open the webhooks of your org</h1>
      <p class="quiet">This link works once. It signs you in for 12 hours.</p>
      <Form submit="Open" onSubmit={async () => onDone(await openPortal(token))} />
    </div>
  </main>
)
