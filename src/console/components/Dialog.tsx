import type { ComponentChildren } from "preact"
import { useEffect, useId, useRef, useState } from "preact/hooks"
import { Button, type Look } from "./Button.tsx"
import { Field, Form, Input } from "./Form.tsx"
import { Card } from "./Page.tsx"

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
  // A click beside the dialog closes it until somebody has typed something.
  const hasTyped = useRef(false)
  const id = useId()
  // What is on its way stays in sight: it may be shown once, or fail.
  const leave = () => isEasyToClose && ref.current?.querySelector("form[aria-busy=true]") === null && onClose()
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
        // The control of a file has this event, too, when somebody chooses none.
        if (event.target !== ref.current) return
        event.preventDefault()
        leave()
      }}
      // A browser closes it in any case when somebody presses Escape again.
      onClose={() => ref.current?.showModal()}
      onInput={() => void (hasTyped.current = true)}
      onMouseDown={(event) => event.target === ref.current && !hasTyped.current && leave()}
    >
      <div class="dialog-head">
        <h2 id={id}>{title}</h2>
        {isEasyToClose && <Button look="plain" icon="close" isSmall aria-label="Close" onClick={leave} />}
      </div>
      <div class="dialog-body">{children}</div>
    </dialog>
  )
}

interface FormDialogProps {
  readonly title: string
  readonly isWide?: boolean
  /** Sentences that say what happens, and fields. */
  readonly children?: ComponentChildren
  /** The verb of the button. */
  readonly submit: string
  readonly isDangerous?: boolean
  /** false: the button cannot be pressed yet. */
  readonly isReady?: boolean
  readonly why?: string | undefined
  /** The reader has to type this text. */
  readonly typed?: string
  readonly onSubmit: () => Promise<unknown>
  readonly onClose: () => void
}

/** A text as a page shows it: of several spaces, one. */
const asShown = (text: string) => text.replaceAll(/\s+/g, " ").trim()

/** Asks before something is done, and for what it needs. Closes when it is done. */
export const FormDialog = ({
  children,
  isReady = true,
  isWide = false,
  onClose,
  onSubmit,
  title,
  typed,
  ...form
}: FormDialogProps) => {
  const [text, setText] = useState("")
  return (
    <Dialog title={title} isWide={isWide} onClose={onClose}>
      <Form
        {...form}
        isReady={isReady && (typed === undefined || asShown(text) === asShown(typed))}
        onSubmit={async () => {
          await onSubmit()
          onClose()
        }}
        onCancel={onClose}
      >
        {children}
        {typed !== undefined && (
          <Field label={`Type ${typed} to confirm`}>
            <Input name="typed" value={text} onInput={setText} autocomplete="off" />
          </Field>
        )}
      </Form>
    </Dialog>
  )
}

interface AskButtonProps extends Look, Omit<FormDialogProps, "onSubmit" | "onClose"> {
  /** The text of the button; with an icon alone, `label` is read out. */
  readonly text?: string
  readonly label?: string
  readonly onConfirm: () => Promise<unknown>
}

/** A button that asks before it does something. */
export const AskButton = ({ icon, isSmall, label, look, onConfirm, text, ...dialog }: AskButtonProps) => {
  const [isAsking, setAsking] = useState(false)
  return (
    <>
      <Button
        {...{ ...(look && { look }), ...(icon && { icon }), ...(isSmall && { isSmall }) }}
        aria-label={label}
        onClick={() => setAsking(true)}
      >
        {text}
      </Button>
      {isAsking && <FormDialog {...dialog} onSubmit={onConfirm} onClose={() => setAsking(false)} />}
    </>
  )
}

/** A button that asks before it removes something. */
export const DeleteButton = (props: Omit<AskButtonProps, "icon" | "isDangerous" | "look">) => (
  <AskButton {...props} look="danger" icon="trash" isDangerous />
)

interface DangerCardProps {
  readonly title: string
  /** The verb of the button. */
  readonly action: string
  /** What the reader has to type. */
  readonly name: string
  /** What happens, in sentences: on the card, and when the reader is asked. */
  readonly children: ComponentChildren
  readonly warning: string
  readonly onConfirm: () => Promise<unknown>
}

/** The part of a page that deletes for good. */
export const DangerCard = ({ action, children, name, onConfirm, title, warning }: DangerCardProps) => (
  <Card title={title} isDangerous>
    <p>{children}</p>
    <div>
      <DeleteButton text={action} onConfirm={onConfirm} title={`${action} ${name}`} submit={action} typed={name}>
        <p>{warning}</p>
      </DeleteButton>
    </div>
  </Card>
)
