import { useState } from "preact/hooks"
import { Button } from "../../components/Button.tsx"
import { CopyButton } from "../../components/Copy.tsx"
import { Dialog } from "../../components/Dialog.tsx"
import { Notice } from "../../components/ErrorBox.tsx"
import { Check } from "../../components/Form.tsx"

interface ShownOnceProps {
  readonly title: string
  readonly secret: string
  readonly onClose: () => void
}

/** A new key. It is not stored, so the dialog closes only after the reader says that they have it. */
export const ShownOnce = ({ onClose, secret, title }: ShownOnceProps) => {
  const [isKept, setKept] = useState(false)
  return (
    <Dialog title={title} onClose={onClose} isEasyToClose={false}>
      <Notice tone="warn">
        <strong>Copy the key now. It is not shown again.</strong>
        <span>Gatehouse stores only its hash. Whoever has the key may use it.</span>
      </Notice>
      <div class="secret">
        <code data-secret>{secret}</code>
        <CopyButton text={secret} label="Copy the key" />
      </div>
      <Check isChecked={isKept} onChange={setKept}>
        I have copied the key to a safe place.
      </Check>
      <div class="actions">
        <Button look="primary" disabled={!isKept} onClick={onClose}>
          Done
        </Button>
      </div>
    </Dialog>
  )
}
