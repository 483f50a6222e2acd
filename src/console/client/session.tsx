import { type ComponentChildren, createContext } from "preact"
import { useContext } from "preact/hooks"
import { call, setBearer, setSession } from "./call.ts"
import { isInFrame } from "./embedded.ts"
import type { ResponseBody, OperationId } from "./Operations.ts"

/** Who uses the console, and which operations they may call. */
export type Me = ResponseBody<"sessions.current">

/** Tells readers apart. */
export const readerOf = ({ orgId, person, principal }: Me) => `${principal} ${orgId} ${person?.subject} ${person?.role}`

const remember = (me: Me): Me => {
  setSession(me.csrfToken, readerOf(me))
  return me
}

export const whoAmI = async () => remember(await call("sessions.current", {}))
export const signIn = async (credential: string) => remember(await call("sessions.create", {}, { credential }))
export const openPortal = async (token: string) => {
  setBearer(undefined)
  const { token: session, ...me } = await call("sessions.openPortal", { token, inFrame: isInFrame })
  setBearer(session)
  return remember(me)
}
export const signOut = async () => {
  await call("sessions.remove", {})
  setSession(null)
}

/** Whose identity signs people in; undefined: with a token or key alone. The server writes it into the page. */
export const issuer = document.body.dataset["signIn"]

/** How a person is shown. */
export const personName = ({ email, name, subject }: Pick<NonNullable<Me["person"]>, "email" | "name" | "subject">) =>
  name ?? email ?? subject

interface Session {
  readonly me: Me
  /** Shows the sign-in page. */
  readonly leave: () => void
}
const SessionContext = createContext<Session | undefined>(undefined)

export const SessionProvider = ({
  children,
  ...session
}: Session & {
  readonly children: ComponentChildren
}) => <SessionContext.Provider value={session}>{children}</SessionContext.Provider>

export const useSession = () => useContext(SessionContext)!

/** Whether the reader may call an operation. What they may not do, a page does not show. */
export const useMay = () => {
  const { operations } = useSession().me
  return (...ids: ReadonlyArray<OperationId>) => ids.every((id) => operations.includes(id))
}
