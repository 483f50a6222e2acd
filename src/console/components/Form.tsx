import { type AllHTMLAttributes, cloneElement, type ComponentChildren, type VNode } from "preact"
import { useId, useRef, useState } from "preact/hooks"
import { Button, type Look } from "./Button.tsx"
import { ErrorBox } from "./ErrorBox.tsx"
import { navigate, useLocation, useSearch } from "../navigation/router.tsx"

interface FieldProps {
  readonly label: string
  readonly hint?: ComponentChildren
  readonly error?: string | undefined
  /** One control. */
  readonly children: VNode<AllHTMLAttributes<HTMLElement>>
}

/** A control with its label, its hint and its error. */
export const Field = ({ children, error, hint, label }: FieldProps) => {
  const id = useId()
  const described = [hint !== undefined && `${id}-hint`, error !== undefined && `${id}-error`].filter(Boolean).join(" ")
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {cloneElement(children, {
        id,
        ...(described === "" ? {} : { "aria-describedby": described }),
        ...(error === undefined ? {} : { "aria-invalid": "true" }),
      })}
      {hint !== undefined && (
        <span class="hint" id={`${id}-hint`}>
          {hint}
        </span>
      )}
      {error !== undefined && (
        <span class="field-error" id={`${id}-error`}>
          {error}
        </span>
      )}
    </div>
  )
}

type Control<E extends HTMLElement> = Omit<AllHTMLAttributes<E>, "onInput" | "value"> & {
  readonly value: string
  readonly onInput: (value: string) => void
}

export const Input = ({ onInput, ...rest }: Control<HTMLInputElement>) => (
  <input class="input" {...(rest as object)} onInput={(event) => onInput(event.currentTarget.value)} />
)

export const TextArea = ({ onInput, ...rest }: Control<HTMLTextAreaElement>) => (
  <textarea class="input" {...(rest as object)} onInput={(event) => onInput(event.currentTarget.value)} />
)

export interface Option {
  readonly value: string
  readonly label: string
}

/** A choice. A value that is none of the options is shown, too: a browser would show the first option in its place. */
export const Select = ({
  onInput,
  options,
  value,
  ...rest
}: Control<HTMLSelectElement> & { readonly options: ReadonlyArray<Option> }) => (
  <select class="input" {...(rest as object)} onInput={(event) => onInput(event.currentTarget.value)}>
    {options.every((option) => option.value !== value) && <option selected>{value}</option>}
    {options.map((option) => (
      <option key={option.value} value={option.value} selected={option.value === value}>
        {option.label}
      </option>
    ))}
  </select>
)

export const Check = ({
  children,
  isChecked,
  onChange,
}: {
  readonly isChecked: boolean
  readonly onChange: (isChecked: boolean) => void
  readonly children: ComponentChildren
}) => (
  <label class="check">
    <input type="checkbox" checked={isChecked} onChange={(event) => onChange(event.currentTarget.checked)} />
    <span>{children}</span>
  </label>
)

/** The texts of a list, as somebody types it: with spaces, commas or new lines between them. */
export const linesOf = (text: string) => text.split(/[\s,]+/).filter(Boolean)

interface LinesProps extends Control<HTMLTextAreaElement> {
  readonly label: string
  readonly hint?: string
  /** Texts that there are already, to add by a click, and what they are called. */
  readonly known?: ReadonlyArray<string>
  readonly knownAs?: string
}

/** A list of texts, one on each line. */
export const Lines = ({ hint, known = [], knownAs, label, ...control }: LinesProps) => {
  const given = linesOf(control.value)
  const others = known.filter((one) => !given.includes(one)).slice(0, 12)
  return (
    <div class="stack tight">
      <Field label={label} hint={hint}>
        <TextArea class="input short" spellcheck={false} autocomplete="off" {...control} />
      </Field>
      {others.length > 0 && (
        <div class="row small">
          <span class="quiet">{knownAs}</span>
          {others.map((one) => (
            <Button
              key={one}
              isSmall
              icon="plus"
              aria-label={`Add ${one}`}
              onClick={() => control.onInput([...given, one].join("\n"))}
            >
              {one}
            </Button>
          ))}
        </div>
      )}
    </div>
  )
}

/** What stands in an address beside the filters of its list. */
const others = ["beside", "new"]

/** The filters of a list, in one row. Where there is little space, a button unfolds many that are not set. */
export const Filters = ({ children }: { readonly children: ComponentChildren }) => {
  const { path, search } = useLocation()
  const [isOpen, setOpen] = useState(false)
  const row = useRef<HTMLDivElement>(null)
  const names = [...search.keys()].filter((name) => !others.includes(name))
  // From one time to another is one filter.
  const count = names.length - (names.includes("since") && names.includes("until") ? 1 : 0)
  const clear = () => {
    row.current?.querySelector("button")?.focus()
    navigate(path, { replace: true })
  }
  return (
    <div class={`filters ${isOpen ? "open" : ""}`} ref={row} tabIndex={-1}>
      <button type="button" class="button small unfold" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        Filters{count > 0 && ` (${count} set)`}
      </button>
      {children}
      {count > 0 && (
        <Button isSmall look="plain" onClick={clear}>
          Clear filters
        </Button>
      )}
    </div>
  )
}

interface ChipProps {
  readonly label: string
  readonly isSet: boolean
  readonly onRemove: () => void
  readonly children: ComponentChildren
}

/** A filter: its name, what it is set to, and what removes it. */
export const Chip = ({ children, isSet, label, onRemove }: ChipProps) => {
  const chip = useRef<HTMLDivElement>(null)
  const remove = () => {
    chip.current?.querySelector<HTMLElement>(".input")?.focus()
    onRemove()
  }
  return (
    <div class={`chip ${isSet ? "set" : ""}`} ref={chip}>
      {children}
      {isSet && <Button isSmall look="plain" icon="close" title={`Remove: ${label}`} onClick={remove} />}
    </div>
  )
}

interface FilterProps extends Pick<FieldProps, "error" | "label"> {
  /** The name in the address of the page. */
  readonly name: string
  /** Absent: a text. */
  readonly options?: ReadonlyArray<Option>
  readonly placeholder?: string
  /** What of a text may stand in the address. */
  readonly clean?: (text: string) => string
}

/** What a list is filtered by: it is in the address of the page. */
export const Filter = ({ clean = (text) => text, error, label, name, options, placeholder }: FilterProps) => {
  const [value = "", set] = useSearch(name)
  return (
    <Chip label={label} isSet={value !== ""} onRemove={() => set(undefined)}>
      <Field label={label} error={error}>
        {options === undefined ? (
          <Input
            value={value}
            onInput={(text) => set(clean(text))}
            placeholder={placeholder}
            autocomplete="off"
            spellcheck={false}
          />
        ) : (
          <Select value={value} onInput={set} options={[{ value: "", label: "All" }, ...options]} />
        )}
      </Field>
    </Chip>
  )
}

/** Runs a change: whether it runs, and why it failed. A change that fails can be tried again with the same key. */
export const useAction = () => {
  const [isRunning, setRunning] = useState(false)
  const [error, setError] = useState<Error>()
  const run = async (action: () => Promise<unknown>) => {
    setRunning(true)
    setError(undefined)
    try {
      await action()
    } catch (error) {
      setError(error as Error)
    } finally {
      setRunning(false)
    }
  }
  return { run, isRunning, error }
}

interface ActionProps extends Look {
  readonly onPress: () => Promise<unknown>
  readonly children: ComponentChildren
}

/** A button that changes something at once. Shows why it failed. */
export const ActionButton = ({ onPress, ...button }: ActionProps) => {
  const { error, isRunning, run } = useAction()
  return (
    <div class="stack tight">
      <div>
        <Button {...button} onClick={() => run(onPress)} disabled={isRunning} />
      </div>
      <ErrorBox error={error} />
    </div>
  )
}

interface FormProps {
  /** The verb of the button. */
  readonly submit: string
  readonly isDangerous?: boolean
  /** false: the button cannot be pressed yet. */
  readonly isReady?: boolean
  /** Why it cannot, unless a field says so. */
  readonly why?: string | undefined
  readonly onSubmit: () => Promise<unknown>
  readonly onCancel?: () => void
  readonly children?: ComponentChildren
}

/** Fields with a button. Shows why the change failed; the page says what happens when it does not. */
export const Form = ({ children, isDangerous = false, isReady = true, why, ...form }: FormProps) => {
  const { onCancel, onSubmit, submit } = form
  const { error, isRunning, run } = useAction()
  const alert = useRef<HTMLDivElement>(null)
  const send = async (event: SubmitEvent) => {
    event.preventDefault()
    if (!isReady || isRunning) return
    await run(onSubmit)
    alert.current?.scrollIntoView({ block: "nearest" })
  }
  return (
    <form class="form" onSubmit={send} aria-busy={isRunning}>
      {children}
      {error !== undefined && (
        <div ref={alert}>
          <ErrorBox error={error} />
        </div>
      )}
      <div class="actions">
        {!isReady && why !== undefined && <span class="hint">{why}</span>}
        {onCancel !== undefined && (
          <Button onClick={onCancel} disabled={isRunning}>
            Cancel
          </Button>
        )}
        <Button type="submit" look={isDangerous ? "primary danger" : "primary"} disabled={!isReady || isRunning}>
          {isRunning ? "One moment…" : submit}
        </Button>
      </div>
    </form>
  )
}
