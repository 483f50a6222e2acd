import { useState } from "preact/hooks"
import type { Args } from "../../client/Operations.ts"
import { useCall } from "../../client/queries.ts"
import { parseJson } from "../../components/Code.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { Field, Form } from "../../components/Form.tsx"
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

/** Imports the keys of a file by their hashes, after a check that changes nothing. */
export const ImportKeys = ({ onClose }: { readonly onClose: () => void }) => {
  const orgId = useOrg()
  const call = useCall()
  const [file, setFile] = useState<ReturnType<typeof keysIn>>({ keys: [] })
  const [report, setReport] = useState<{ readonly made: number; readonly existing: number }>()
  const send = async (dryRun: boolean) => {
    const sum = { made: 0, existing: 0 }
    for (let from = 0; from < file.keys.length; from += maxKeys) {
      const keys = file.keys.slice(from, from + maxKeys)
      const { existing, imported } = await call("keys.importKeys", { orgId, keys, dryRun })
      sum.made += imported.length
      sum.existing += existing.length
    }
    return sum
  }
  const submit = async () => {
    if (report === undefined) return setReport(await send(true))
    const { made } = await send(false)
    toast(`${counted(made, "key")} ${made === 1 ? "is" : "are"} imported.`)
    onClose()
  }
  return (
    <Dialog title="Import keys" onClose={onClose}>
      <Form
        submit={report === undefined ? "Check the file" : `Import ${counted(report.made, "key")}`}
        isReady={file.keys.length > 0 && report?.made !== 0}
        onSubmit={submit}
        onCancel={onClose}
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
            onChange={async ({ currentTarget }) => {
              setReport(undefined)
              setFile(keysIn((await currentTarget.files?.[0]?.text()) ?? ""))
            }}
          />
        </Field>
        {report !== undefined && (
          <Notice tone={report.made > 0 ? "good" : "warn"}>
            <strong>
              {counted(report.made, "key")} can be imported, {report.existing} {report.existing === 1 ? "is" : "are"}{" "}
              here already.
            </strong>
            <span>Nothing is changed yet. Those that are here already stay as they are.</span>
          </Notice>
        )}
      </Form>
    </Dialog>
  )
}
