import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { Button } from "./Button.tsx"
import { Field, Form, Input } from "./Form.tsx"

interface DialogProps {
  readonly title: string
  readonly onClose: () => void
  readonly isWide?: boolean
  /** false: only its own button closes it, because what it shows is shown once. */
  readonly isEasyToClose?: boolean
  readonly children: ComponentChildren
}

/** A dialog above the page. The browser keeps the focus in it, and returns the focus when it closes. */
export const Dialog = ({ children, isEasyToClose = true, isWide = false, onClose, title }: DialogProps) => {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    const opener = document.activeElement as HTMLElement | null
    ref.current?.showModal()
    // Focuses the first control of the content, not the button that closes.
    ref.current?.querySelector<HTMLElement>(".dialog-body :is(input, select, textarea, button, a)")?.focus()
    return () => opener?.focus()
  }, [])
  return (
    <dialog
      ref={ref}
      class={`dialog ${isWide ? "wide" : ""}`}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault()
        if (isEasyToClose) onClose()
      }}
      onMouseDown={(event) => isEasyToClose && event.target === ref.current && onClose()}
    >
      <div class="dialog-head">
        <h2 id={id}>{title}</h2>
        {isEasyToClose && <Button look="plain" icon="close" isSmall aria-label="Close" onClick={onClose} />}
      </div>
      <div class="dialog-body">{children}</div>
    </dialog>
  )
}

interface ConfirmProps {
  readonly title: string
  /** What happens, in sentences. */
  readonly children: ComponentChildren
  /** The verb of the button. */
  readonly action: string
  readonly isDangerous?: boolean
  /** The reader has to type this text. */
  readonly typed?: string
  readonly onConfirm: () => Promise<unknown>
  readonly onClose: () => void
}

/** Asks before something is done. Closes when it is done. */
export const Confirm = ({ action, children, isDangerous, onClose, onConfirm, title, typed }: ConfirmProps) => {
  const [text, setText] = useState("")
  const confirm = async () => {
    await onConfirm()
    onClose()
  }
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">{children}</div>
      <Form
        submit={action}
        isDangerous={isDangerous ?? false}
        isReady={typed === undefined || text === typed}
        onSubmit={confirm}
        onCancel={onClose}
      >
        {typed !== undefined && (
          <Field label={`Type ${typed} to confirm`}>
            <Input name="typed" value={text} onInput={setText} autocomplete="off" />
          </Field>
        )}
      </Form>
    </Dialog>
  )
}
