import { useEffect, useState } from "preact/hooks"
import { GatehouseError, onRefusal } from "./client/call.ts"
import { embedded, isInFrame } from "./client/embedded.ts"
import { queries, refresh } from "./client/queries.ts"
import { issuer, type Me, openPortal, readerOf, SessionProvider, signIn, whoAmI } from "./client/session.tsx"
import { Button } from "./components/Button.tsx"
import { Dialog } from "./components/Dialog.tsx"
import { ErrorBox, Notice } from "./components/ErrorBox.tsx"
import { Field, Form, Input } from "./components/Form.tsx"
import { Toasts } from "./components/Toasts.tsx"
import type { FrameSettings } from "./frame/settings.ts"
import { Brand, look, platformName, showAsPortal } from "./navigation/Brand.tsx"
import { Layout } from "./navigation/Layout.tsx"
import { navigate, orgPath, Router } from "./navigation/router.tsx"

type State =
  /** `hasEnded`: the session is over, and the page stays until somebody signs in again. */
  | { readonly me: Me; readonly hasEnded?: boolean }
  | { readonly signedOut: true }
  /** `onRetry`: in a frame, whose token opens it once. */
  | { readonly error: Error; readonly onRetry?: () => Promise<void> }
  | { readonly token: string }

/** Reads the token of a portal link, and removes it from the address and the history. */
const takeLinkToken = () => {
  if (location.pathname !== "/console/portal" || location.hash === "") return undefined
  const token = location.hash.slice(1)
  history.replaceState(null, "", "/console")
  return token
}

const returnKey = "return"

/** Goes back to the page that was open before the sign-in with the company's identity, which ends at the first page. */
const goBack = () => {
  const path = sessionStorage.getItem(returnKey)
  sessionStorage.removeItem(returnKey)
  if (path !== null && location.pathname === "/console") navigate(path, { replace: true })
}

const isEnded = (error: Error) => error instanceof GatehouseError && error.status === 401

/** Finds out who the reader is: signed in, not signed in, or with a portal link. */
const useReader = () => {
  const [state, setState] = useState<State | undefined>(() => {
    const token = takeLinkToken()
    return token === undefined ? undefined : { token }
  })
  const read = () =>
    whoAmI().then(
      (me) => {
        goBack()
        setState({ me })
      },
      (error: Error) => setState(isEnded(error) ? { signedOut: true } : { error }),
    )
  useEffect(() => {
    if (state === undefined && !isInFrame) void read()
  }, [])
  // Whichever response says first that the session has ended, or that another tab has begun one.
  useEffect(() => {
    const change = (next: (me: Me) => State) =>
      setState((now) => (now !== undefined && "me" in now ? next(now.me) : now))
    onRefusal((reader) =>
      whoAmI().then(
        (me) => {
          if (readerOf(me) !== reader) queries.clear()
          change(() => ({ me }))
        },
        (error: Error) => isEnded(error) && change((me) => ({ me, hasEnded: true })),
      ),
    )
  }, [])
  return { state, setState, read }
}

/** In a frame: what the page around it has chosen, and its token as the reader. Asks for another when that ends. */
const useFrame = ({ setState, state }: Pick<ReturnType<typeof useReader>, "setState" | "state">) => {
  const [settings, setSettings] = useState<FrameSettings>()
  const [hasEnded, setEnded] = useState(false)
  useEffect(() => {
    if (!isInFrame) return
    void import("./frame/frame.ts").then(({ listen, tell }) => {
      const onToken = (token: string): Promise<void> =>
        openPortal(token).then(
          (me) => {
            void refresh()
            setState({ me })
          },
          (error: Error) => {
            if (isEnded(error)) tell({ gatehouse: "token-needed", reason: "refused" })
            setState({ error, onRetry: () => onToken(token) })
          },
        )
      const onSettings = (next: FrameSettings) =>
        setSettings((before) => {
          if (before === undefined) tell({ gatehouse: "token-needed", reason: "start" })
          return { ...before, ...next }
        })
      listen(embedded.origins!, { onSettings, onToken })
    })
  }, [])
  const isOver = state !== undefined && "me" in state && state.hasEnded === true
  useEffect(() => {
    if (!isInFrame || !isOver || hasEnded) return setEnded(isOver)
    setEnded(true)
    void import("./frame/frame.ts").then(({ tell }) => tell({ gatehouse: "token-needed", reason: "ended" }))
  }, [isOver])
  const orgId = state !== undefined && "me" in state ? state.me.orgId : null
  // The first page, and not where the reader is later.
  useEffect(() => {
    if (settings?.page !== undefined && orgId !== null) navigate(orgPath(orgId, `/${settings.page}`), { replace: true })
  }, [settings?.page, orgId])
  return settings
}

/** While the page around the frame has not given another token. */
const NextSession = () => (
  <Dialog title="Your session has ended" onClose={() => undefined} isEasyToClose={false}>
    <Notice tone="calm">The next one begins when this page asks for it. What you have typed is still there.</Notice>
  </Dialog>
)

export const App = () => {
  const { read, setState, state } = useReader()
  const settings = useFrame({ state, setState })
  if (state === undefined) {
    if (isInFrame) showAsPortal(true, settings)
    return (
      <div class="layout">
        <aside class="sidebar" />
        <main class="page" aria-busy="true" />
      </div>
    )
  }
  showAsPortal("token" in state || isInFrame || ("me" in state && state.me.principal === "portal"), settings)
  if ("token" in state) return <OpenLink token={state.token} onDone={(me) => setState({ me })} />
  if ("signedOut" in state) return <SignIn onDone={(me) => setState({ me })} />
  if ("error" in state) {
    return (
      <main class="entry">
        <ErrorBox error={state.error} onRetry={state.onRetry ?? read} />
      </main>
    )
  }
  const leave = () => {
    queries.clear()
    navigate("/", { replace: true })
    setState({ signedOut: true })
  }
  const { hasEnded = false, me } = state
  const signedInAgain = (next: Me) => {
    // What somebody else may see is read again, and their page begins again.
    if (readerOf(next) === readerOf(me)) void refresh()
    else queries.clear()
    setState({ me: next })
  }
  return (
    <SessionProvider me={me} leave={leave} key={readerOf(me)}>
      <Router>
        <Layout />
      </Router>
      <Toasts />
      {hasEnded && isInFrame && <NextSession />}
      {hasEnded && !isInFrame && <Ended me={me} onDone={signedInAgain} leave={leave} />}
    </SessionProvider>
  )
}

interface EndedProps {
  readonly me: Me
  readonly onDone: (me: Me) => void
  readonly leave: () => void
}

/** What a reader does whose session has ended. Another tab may do it: this one looks when its reader comes back. */
const Ended = ({ leave, me, onDone }: EndedProps) => {
  useEffect(() => {
    const look = () => void whoAmI().then(onDone, () => undefined)
    addEventListener("focus", look)
    return () => removeEventListener("focus", look)
  }, [])
  if (me.principal === "portal") {
    return (
      <Dialog title="The portal has ended" onClose={() => undefined} isEasyToClose={false}>
        <Notice tone="calm">
          Ask for another link, and open it in this browser. What you have typed here is still there then.
        </Notice>
      </Dialog>
    )
  }
  return (
    <Dialog title="Sign in again" onClose={() => undefined} isEasyToClose={false}>
      <Notice tone="calm">Your session has ended. What you have typed is still there.</Notice>
      <CompanySignIn isInOtherTab />
      <CredentialForm onDone={onDone} />
      <div>
        <Button look="plain" onClick={leave}>
          Leave this page
        </Button>
      </div>
    </Dialog>
  )
}

/** A link is opened by a button, because mail scanners follow links. */
const OpenLink = ({ onDone, token }: { readonly onDone: (me: Me) => void; readonly token: string }) => (
  <main class="entry">
    <Brand />
    <div class="card card-body">
      <h1>{look.name === undefined ? "Open the webhooks of your org" : `Open your webhooks of ${platformName()}`}</h1>
      {look.text !== undefined && <p>{look.text}</p>}
      <p class="quiet">This link works once. It signs you in for 12 hours.</p>
      <Form submit="Open" onSubmit={async () => onDone(await openPortal(token))} />
    </div>
  </main>
)

const CredentialForm = ({ onDone }: { readonly onDone: (me: Me) => void }) => {
  const [credential, setCredential] = useState("")
  const submit = async () =>
    onDone(
      await signIn(credential.trim()).catch((error: Error) => {
        if (isEnded(error)) error.message = "This token or key is not valid."
        throw error
      }),
    )
  return (
    <Form submit="Sign in" onSubmit={submit}>
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
  )
}

/** Signs in with the company's identity, if the service has one. In another tab, this one keeps what was typed. */
const CompanySignIn = ({ isInOtherTab = false }: { readonly isInOtherTab?: boolean }) => {
  if (issuer === undefined) return null
  const keepPath = () => {
    const path = location.pathname.slice("/console".length) + location.search
    if (!isInOtherTab && path !== "") sessionStorage.setItem(returnKey, path)
  }
  return (
    <a class="button primary" href="/console/sign-in" target={isInOtherTab ? "_blank" : undefined} onClick={keepPath}>
      Sign in with {issuer}
    </a>
  )
}

const SignIn = ({ onDone }: { readonly onDone: (me: Me) => void }) => (
  <main class="entry">
    <Brand />
    <div class="card card-body">
      <h1>Sign in</h1>
      <CompanySignIn />
      <CredentialForm onDone={onDone} />
    </div>
  </main>
)
