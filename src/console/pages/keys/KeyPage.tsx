import { useEffect, useState } from "preact/hooks"
import { useCall, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { State } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { useNow } from "../../components/Time.tsx"
import { toast } from "../../components/Toasts.tsx"
import { orgPath, useParam } from "../../navigation/router.tsx"
import { DeleteKey, DisableKey, EditKey, RotateKey } from "./KeyDialogs.tsx"
import { KeyFacts, KeyNotices } from "./KeyFacts.tsx"
import { isEnded, type Key, keyStateOf } from "./keyState.ts"
import { KeyUsage } from "./KeyUsage.tsx"

/** A key of an org. No operation reads one key, so pages of the list are read until it is there. */
const useKey = (orgId: string, id: string) => {
  const { error, isLoadingMore, more, refetch, rows } = usePages("keys.list", { orgId, limit: 100 }, ({ keys }) => keys)
  const found = rows?.find((key) => key.id === id)
  useEffect(() => {
    if (found === undefined && !isLoadingMore && error === null) more?.()
  }, [found, more, isLoadingMore, error])
  return { found, error, refetch, isMissing: rows !== undefined && found === undefined && more === undefined }
}

const dialogs = { edit: EditKey, rotate: RotateKey, disable: DisableKey, delete: DeleteKey }

/** What can be done with a key. */
const useActions = (orgId: string, key: Key | undefined) => {
  const may = useMay()
  const call = useCall()
  const now = useNow()
  const [open, setOpen] = useState<keyof typeof dialogs>()
  if (key === undefined || !may("keys.update")) return {}
  const enable = async () => {
    await call("keys.update", { orgId, id: key.id, enabled: true })
    toast("The key is enabled.")
  }
  const Open = open && dialogs[open]
  const buttons = (
    <>
      <Button onClick={() => setOpen("edit")}>Change</Button>
      {!isEnded(key, now) && key.replacedBy === null && (
        <Button icon="repeat" onClick={() => setOpen("rotate")}>
          Rotate
        </Button>
      )}
      {key.leakedAt === null &&
        (key.enabled ? (
          <Button icon="pause" onClick={() => setOpen("disable")}>
            Disable
          </Button>
        ) : (
          <Button icon="play" onClick={() => enable().catch((error: Error) => toast(error.message))}>
            Enable
          </Button>
        ))}
      <Button look="danger" icon="trash" onClick={() => setOpen("delete")}>
        Delete
      </Button>
    </>
  )
  return { buttons, dialog: Open && <Open orgId={orgId} of={key} onClose={() => setOpen(undefined)} /> }
}

export default () => {
  const orgId = useParam("orgId")
  const id = useParam("keyId")
  const now = useNow()
  const { error, found, isMissing, refetch } = useKey(orgId, id)
  const { buttons, dialog } = useActions(orgId, found)
  return (
    <Page
      title={found?.name ?? "API key"}
      crumbs={[{ to: orgPath(orgId, "/keys"), label: "API keys" }]}
      state={found && <State of={keyStateOf(found, now)} />}
      {...(found && { intro: <code>{found.prefix}…</code> })}
      actions={buttons}
    >
      <ErrorBox error={error} onRetry={refetch} />
      {isMissing ? (
        <div class="card">
          <Empty icon="key" title="There is no such key">
            <p>It may have been deleted. The audit log of the org says by whom, and when.</p>
          </Empty>
        </div>
      ) : found === undefined ? (
        <Skeleton lines={5} />
      ) : (
        <>
          <KeyNotices of={found} />
          <KeyUsage orgId={orgId} id={id} />
          <Card title="Settings">
            <KeyFacts of={found} />
          </Card>
        </>
      )}
      {dialog}
    </Page>
  )
}
