import { createContext } from "preact"
import { useContext } from "preact/hooks"

/** The org of the page: of its address, or of the reader's key. */
export const OrgContext = createContext<string | undefined>(undefined)

export const useOrgId = () => useContext(OrgContext)

/** The org of a page that has one. */
export const useOrg = () => useContext(OrgContext)!
