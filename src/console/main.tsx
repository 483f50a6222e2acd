import { render } from "preact"
import { useEffect, useState } from "preact/hooks"
import { type Me, openPortal, Refused, signIn, signOut, whoAmI } from "./api.ts"

type State = { readonly me: Me } | { readonly signedOut: true } | { readonly loading: true }

/** Reads the token of a portal link, and removes it from the address and the history. */
const takeLinkToken = () => {
  if (location.pathname !== "/console/portal" || location.hash === "") return undefined
  const token = location.hash.slice(1)
  history.replaceState(null, "", "/console")
  return token
}
const linkToken = takeLinkToken()

const names: Record<Me["principal"], string> = {
  administrator: "Administrator",
  orgKey: "Org key",
  projectKey: "Project key",
  portal: "Webhooks of an org",
  anonymous: "Anyone on this machine",
}

/** Runs a change of the page, and shows why it failed. */
const useAction = () => {
  const [fault, setFault] = useState("")
  const run = (action: () => Promise<void>) => {
    setFault("")
    action().catch((error: Error) => setFault(error.message))
  }
  return { fault: fault === "" ? null : <p role="alert">{fault}</p>, run }
}

const SignIn = ({ onDone }: { readonly onDone: (me: Me) => void }) => {
  const { fault, run } = useAction()
  const submit = (event: SubmitEvent) => {
    event.preventDefault()
    const form = new FormData(event.currentTarget as HTMLFormElement)
    run(async () => onDone(await signIn(String(form.get("credential")).trim())))
  }
  return (
    <main>
      <h1>Sign in to Gatehouse</h1>
      <form onSubmit={submit}>
        <label for="credential">The administrator's token, or an API key</label>
        <input id="credential" name="credential" type="password" autocomplete="current-password" required />
        <button type="submit">Sign in</button>
        {fault}
      </form>
    </main>
  )
}

const OpenLink = ({ onDone, token }: { readonly onDone: (me: Me) => void; readonly token: string }) => {
  const { fault, run } = useAction()
  return (
    <main>
      <h1>Open the webhooks of your org</h1>
      <p>This link works once. It signs you in for 12 hours.</p>
      <button type="button" onClick={() => run(async () => onDone(await openPortal(token)))}>
        Open
      </button>
      {fault}
    </main>
  )
}

const SignedIn = ({ me, onSignOut }: { readonly me: Me; readonly onSignOut: () => void }) => {
  const { fault, run } = useAction()
  const leave = () =>
    run(async () => {
      await signOut()
      onSignOut()
    })
  return (
    <>
      <header>
        <strong>Gatehouse</strong>
        {me.csrfToken !== null && (
          <button type="button" onClick={leave}>
            Sign out
          </button>
        )}
      </header>
      <main>
        <h1>{names[me.principal]}</h1>
        <dl>
          <dt>Mode</dt>
          <dd>{me.mode}</dd>
          <dt>Org</dt>
          <dd>{me.orgId ?? "every org"}</dd>
          <dt>Session ends</dt>
          <dd>{me.expiresAt === null ? "never" : new Date(me.expiresAt).toLocaleString()}</dd>
          <dt>May call</dt>
          <dd>{me.operations.length} operations</dd>
        </dl>
        {fault}
      </main>
    </>
  )
}

const Console = () => {
  const [state, setState] = useState<State>({ loading: true })
  const [token, setToken] = useState(linkToken)
  const [fault, setFault] = useState("")
  const onDone = (me: Me) => {
    setToken(undefined)
    setState({ me })
  }
  useEffect(() => {
    if (token !== undefined) return
    whoAmI().then(
      (me) => setState({ me }),
      (error: Error) =>
        error instanceof Refused && error.status === 401 ? setState({ signedOut: true }) : setFault(error.message),
    )
  }, [token])
  if (token !== undefined) return <OpenLink token={token} onDone={onDone} />
  if (fault !== "") return <p role="alert">{fault}</p>
  if ("me" in state) return <SignedIn me={state.me} onSignOut={() => setState({ signedOut: true })} />
  return "signedOut" in state ? <SignIn onDone={onDone} /> : <main aria-busy="true" />
}

render(<Console />, document.getElementById("console")!)
