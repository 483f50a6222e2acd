import { type Done, type History, type Violation } from "../history.ts"

/** The names of tenants in a text: every text of a tenant begins with its name. */
const marksIn = (text: string) => new Set([...text.matchAll(/\bt\d+x(?=-|\b)/g)].map(([mark]) => mark))

const foreign = (text: string, tenant: string) => [...marksIn(text)].find((mark) => mark !== tenant)

/** No tenant sees another's data, in an answer or in a delivery. */
export const tenants = ({ done, received }: History): ReadonlyArray<Violation> => [
  ...done.flatMap((one: Done) => {
    // The administrator reads of all, and a token is no text.
    const isSeen = one.body !== undefined && one.kind !== "readAll" && one.kind !== "exchange"
    const other = isSeen ? foreign(JSON.stringify(one.body), one.tenant) : undefined
    if (other === undefined) return []
    return [{ oracle: "tenants", at: one.end, what: `the answer to ${one.kind} of ${one.tenant} has data of ${other}` }]
  }),
  ...received.flatMap((one) => {
    const [owner] = marksIn(one.url)
    const other = owner === undefined ? undefined : foreign(one.body, owner)
    return other === undefined ? [] : [{ oracle: "tenants", at: one.at, what: `${one.url} received data of ${other}` }]
  }),
]
