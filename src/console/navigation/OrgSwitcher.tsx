import { useState } from "preact/hooks"
import { Dialog } from "../components/Dialog.tsx"
import { Field, Input } from "../components/Form.tsx"
import { Icon } from "../components/Icon.tsx"
import { NoMatch } from "../components/NoMatch.tsx"
import { Table } from "../components/Table.tsx"
import { contains, useMatches } from "../client/matches.ts"
import { useData, usePages } from "../client/queries.ts"
import { useMay, useSession } from "../client/session.tsx"
import { useOrgId } from "./org.ts"
import { Link, orgPath } from "./router.tsx"

const isId = (text: string) => /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(text)

/** A list of orgs to choose from, by name or by id. */
const ChooseOrg = ({ onClose }: { readonly onClose: () => void }) => {
  const [text, setText] = useState("")
  const id = text.trim().toUpperCase()
  const all = usePages("orgs.list", { limit: 100 }, ({ orgs }) => orgs)
  const matches = ({ name, orgId }: { readonly name: string; readonly orgId: string }) => contains(text, name, orgId)
  const named = useMatches(all, text === "" || isId(id) ? undefined : matches)
  // An id opens its org, also one that was not read.
  const pages = isId(id) ? { ...all, rows: all.rows?.filter(matches) } : named
  return (
    <Dialog title="Choose an org" onClose={onClose}>
      <Field label="Name or id">
        <Input value={text} onInput={setText} autocomplete="off" placeholder="Acme" />
      </Field>
      {isId(id) && pages.rows?.length === 0 ? (
        <Link to={orgPath(id)} onClickCapture={onClose}>
          Open the org {id}
        </Link>
      ) : (
        <Table
          caption="Orgs"
          {...pages}
          rowKey={({ orgId }) => orgId}
          empty={<NoMatch noun="org" more={pages.more} />}
          columns={[
            {
              title: "Org",
              cell: ({ name, orgId }) => (
                <Link class="main" to={orgPath(orgId)} onClickCapture={onClose}>
                  {name}
                </Link>
              ),
            },
          ]}
        />
      )}
    </Dialog>
  )
}

/** Names the org of the page, and opens another one. */
export const OrgSwitcher = () => {
  const { me } = useSession()
  const may = useMay()
  const orgId = useOrgId()
  const [isChoosing, setChoosing] = useState(false)
  const { data } = useData("orgs.get", { orgId: orgId ?? "" }, { enabled: orgId !== undefined && may("orgs.get") })
  const name = orgId === undefined ? "Choose an org" : (data?.name ?? "Org")
  if (me.orgId !== null) return <div class="switcher truncate">{name}</div>
  return (
    <>
      <button type="button" class="switcher" aria-haspopup="dialog" onClick={() => setChoosing(true)}>
        <span class="truncate">{name}</span>
        <Icon name="sort" />
      </button>
      {isChoosing && <ChooseOrg onClose={() => setChoosing(false)} />}
    </>
  )
}
