import { useEffect, useState } from "preact/hooks"
import { Button } from "../../components/Button.tsx"
import { Code, pretty } from "../../components/Code.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { ErrorBox, Notice } from "../../components/ErrorBox.tsx"
import { useAction } from "../../components/Form.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { useCall } from "../../client/queries.ts"
import type { Answer } from "../../client/Operations.ts"

type Result = Answer<"webhooks.test">

const Found = ({ result }: { readonly result: Result }) => (
  <>
    <Notice tone={result.delivered ? "good" : "bad"}>
      <strong>
        {result.delivered ? "The receiver took it" : "The receiver did not take it"}
        {result.status !== null && `: HTTP ${result.status}`}
      </strong>
      {result.error !== null && <span>{result.error}</span>}
      {!result.delivered && result.status !== null && <span>Only a 2xx status counts as delivered.</span>}
    </Notice>
    {result.body !== null && result.body !== "" && <Code title="Its answer" text={pretty(result.body)} />}
  </>
)

/** Sends a signed test event, and shows what the receiver answers. */
export const SendTest = ({ id, onClose }: { readonly id: string; readonly onClose: () => void }) => {
  const call = useCall()
  const [result, setResult] = useState<Result>()
  const { error, isRunning, run } = useAction()
  const send = () => run(async () => setResult(await call("webhooks.test", { id })))
  useEffect(() => void send(), [])
  return (
    <Dialog title="Test of the endpoint" onClose={onClose}>
      <p class="quiet">A signed job.completed with made-up ids. It is no delivery, and in no list.</p>
      <ErrorBox error={error} />
      {isRunning ? <Skeleton lines={2} /> : result !== undefined && <Found result={result} />}
      <div class="actions">
        <Button onClick={send} disabled={isRunning}>
          {isRunning ? "Waiting for the answer…" : "Send again"}
        </Button>
      </div>
    </Dialog>
  )
}
