import { useState } from "preact/hooks"
import type { Args } from "../../client/Operations.ts"
import { useCall } from "../../client/queries.ts"
import { parseJson } from "../../components/Code.tsx"
import { FormDialog } from "../../components/Dialog.tsx"
import { ErrorBox, Notice } from "../../components/ErrorBox.tsx"
import { Field, useAction } from "../../components/Form.tsx"
import { counted } from "../../components/numbers.ts"
import { toast } from "../../components/Toasts.tsx"
import { useOrg } from "../../navigation/org.ts"

type Keys = Args<"keys.importKeys">["keys"]

/** Keys of one request. */
const maxKeys = 1_000

/** The keys of a file: a list, or the body of a request. */
const keysIn = (text: string): { readonly keys: Keys; readonly error?: string | undefined } => {
  const { error, value } = parseJson(text)
  const keys = Array.isArray(value) ? value : (value as { readonly keys?: unknown } | undefined)?.keys
  if (error !== undefined) return { keys: [], error }
  return Array.isArray(keys) && keys.length > 0 ? { keys } : { keys: [], error: "The file has no list of keys." }
}

/** Imports the keys of a file by their hashes. A check that changes nothing says before how many. */
export const ImportKeys = ({ onClose }: { readonly onClose: () => void }) => {
  const orgId = useOrg()
  const call = useCall()
  const check = useAction()
  const [file, setFile] = useState<ReturnType<typeof keysIn>>({ keys: [] })
  const [checked, setChecked] = useState<{ readonly keys: Keys; readonly made: number; readonly existing: number }>()
  // Another file may have been chosen meanwhile.
  const report = checked?.keys === file.keys ? checked : undefined
  const send = async (all: Keys, dryRun: boolean) => {
    const sum = { made: 0, existing: 0 }
    for (let from = 0; from < all.length; from += maxKeys) {
      const keys = all.slice(from, from + maxKeys)
      const { existing, imported } = await call("keys.importKeys", { orgId, keys, dryRun })
      sum.made += imported.length
      sum.existing += existing.length
    }
    return sum
  }
  const choose = async (text: string) => {
    const found = keysIn(text)
    setFile(found)
    if (found.keys.length > 0) setChecked({ keys: found.keys, ...(await send(found.keys, true)) })
  }
  const submit = async () => {
    const { made } = await send(file.keys, false)
    toast(`${counted(made, "key")} ${made === 1 ? "is" : "are"} imported.`)
  }
  return (
    <FormDialog
      title="Import keys"
      submit={report === undefined ? "Import" : `Import ${counted(report.made, "key")}`}
      isReady={report !== undefined && report.made > 0}
      onSubmit={submit}
      onClose={onClose}
    >
      <Field
        label="File"
        hint="JSON: a list of keys, each with hash, algorithm, name and settings. Your callers keep their keys."
        error={file.error}
      >
        <input
          type="file"
          class="input"
          accept=".json,application/json"
          onChange={({ currentTarget: { files } }) => check.run(async () => choose((await files?.[0]?.text()) ?? ""))}
        />
      </Field>
      <ErrorBox error={check.error} />
      {report !== undefined && (
        <Notice tone={report.made > 0 ? "good" : "warn"}>
          <strong>
            {counted(report.made, "key")} can be imported, {report.existing} {report.existing === 1 ? "is" : "are"} here
            already.
          </strong>
          <span>Nothing is changed yet. Those that are here already stay as they are.</span>
        </Notice>
      )}
    </FormDialog>
  )
}
