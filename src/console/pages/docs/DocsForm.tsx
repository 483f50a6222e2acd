import { useState } from "preact/hooks"
import { useCall } from "../../client/queries.ts"
import { Dialog } from "../../components/Dialog.tsx"
import { Check, Field, Form, Input } from "../../components/Form.tsx"
import { toast } from "../../components/Toasts.tsx"
import type { Docs } from "./docs.ts"

interface DocsFormProps {
  readonly projectId: string
  /** undefined: nothing is stored yet. */
  readonly docs: Docs | undefined
  readonly onClose: () => void
}

/** Where the documentation of a project is, who may read it, and whether questions are kept. */
export const DocsForm = ({ docs, onClose, projectId }: DocsFormProps) => {
  const call = useCall()
  const [docsZipUrl, setZipUrl] = useState(docs?.docsZipUrl ?? "")
  const [docsUrl, setDocsUrl] = useState(docs?.docsUrl ?? "")
  const [isPublic, setPublic] = useState(docs?.public ?? false)
  const [keepQuestions, setKeepQuestions] = useState(docs?.keepQuestions ?? false)
  const save = async () => {
    const site = docsUrl.trim() === "" ? null : docsUrl.trim()
    await call("docs.put", {
      projectId,
      docsZipUrl: docsZipUrl.trim(),
      docsUrl: site,
      public: isPublic,
      keepQuestions,
    })
    toast("The documentation is saved. Gatehouse fetches the zip.")
    onClose()
  }
  return (
    <Dialog title={docs === undefined ? "Store documentation" : "Change the documentation"} onClose={onClose}>
      <Form submit="Save and fetch" isReady={docsZipUrl.trim() !== ""} onSubmit={save} onCancel={onClose}>
        <Field
          label="URL of the zip"
          hint="A zip of .md and .mdx files. {sha} and {deployment} stand for the current deployment."
        >
          <Input
            type="url"
            name="docsZipUrl"
            value={docsZipUrl}
            onInput={setZipUrl}
            required
            maxLength={2048}
            placeholder="https://docs.example.com/docs.zip"
            autocomplete="off"
            spellcheck={false}
          />
        </Field>
        <Field label="Address of the site" hint="Makes the sources of answers links. Empty: sources are slugs.">
          <Input
            type="url"
            name="docsUrl"
            value={docsUrl}
            onInput={setDocsUrl}
            maxLength={2048}
            placeholder="https://docs.example.com/"
            autocomplete="off"
            spellcheck={false}
          />
        </Field>
        <Check isChecked={isPublic} onChange={setPublic}>
          Anyone may read the stored pages, without a key
        </Check>
        <Check isChecked={keepQuestions} onChange={setKeepQuestions}>
          Keep the questions that readers ask. Tell your readers.
        </Check>
      </Form>
    </Dialog>
  )
}
