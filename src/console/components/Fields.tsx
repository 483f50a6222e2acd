import type { AllHTMLAttributes } from "preact"
import { useState } from "preact/hooks"
import { objectOf, parseJson } from "./Code.tsx"
import { Check, Field, Input, Lines, linesOf, type Option, Select, TextArea } from "./Form.tsx"
import { dateControl, fromLocal, toLocal } from "./Time.tsx"

/** One field of a form: its control, which text a stored value is, and what its text is in a request. */
interface FieldSpec extends Omit<AllHTMLAttributes<HTMLElement>, "label" | "onInput"> {
  readonly label: string
  readonly hint?: string | undefined
  /** What is wrong with a text, if anything is. */
  readonly check?: (text: string) => string | undefined
  /** What it is shown as; absent: one line, or a choice of the `options`. A check has the text "yes", or none. */
  readonly as?: "area" | "lines" | "check"
  readonly options?: ReadonlyArray<Option>
  /** Texts that lines may have, to add by a click, and what they are called. */
  readonly known?: ReadonlyArray<string>
  readonly knownAs?: string
  readonly read: (value: never) => string
  readonly write: (text: string) => unknown
}
type FieldTable = Readonly<Record<string, FieldSpec>>
type Texts<T extends FieldTable> = { readonly [Name in keyof T]: string }
type Stored<T extends FieldTable> = { readonly [Name in keyof T]?: Parameters<T[Name]["read"]>[0] | null | undefined }
type Values<T extends FieldTable> = { readonly [Name in keyof T]: ReturnType<T[Name]["write"]> }

const shown = (value: string | number | null | undefined) => (value == null ? "" : String(value))

/** A text that has to be there. */
export const text = { read: shown, write: (text: string) => text.trim() }

/** A text; null when it is empty. */
export const optional = { read: shown, write: (text: string) => text.trim() || null }

/** A number; null when it is empty. */
export const number = {
  type: "number",
  read: shown,
  write: (text: string) => (text === "" ? null : Number(text)),
}

/** A list, one on each line; null when it is empty. */
export const list = {
  as: "lines" as const,
  read: (value: ReadonlyArray<string> | null | undefined) => value?.join("\n") ?? "",
  write: (text: string) => (linesOf(text).length === 0 ? null : linesOf(text)),
}

/** Any JSON; undefined when it is empty. */
export const json = {
  as: "area" as const,
  class: "input short",
  spellcheck: false,
  read: (value: unknown) => (value == null ? "" : JSON.stringify(value, null, 2)),
  write: (text: string): unknown => (text.trim() === "" ? undefined : parseJson(text).value),
  check: (text: string) => (text.trim() === "" ? undefined : parseJson(text).error),
}

/** A JSON object; null when it is empty. */
export const object = {
  ...json,
  write: (text: string) => objectOf(text) ?? null,
  check: (text: string) =>
    text.trim() === "" || objectOf(text) ? undefined : 'Enter a JSON object, such as {"plan": "pro"}.',
}

/** A time in the reader's zone; null when it is empty. */
export const time = {
  ...dateControl,
  read: (value: string | null | undefined) => toLocal(value ?? ""),
  write: (text: string) => fromLocal(text) ?? null,
}

export const flag = {
  as: "check" as const,
  read: (value: boolean | null | undefined) => (value === true ? "yes" : ""),
  write: (text: string) => text !== "",
}

/** A choice; the first one is what a new thing has. */
export const choice = <Value extends string>(labels: Readonly<Record<Value, string>>) => {
  const options = Object.entries<string>(labels).map(([value, label]) => ({ value: value as Value, label }))
  return {
    options,
    read: (value: Value | null | undefined) => value ?? options[0]!.value,
    write: (text: string) => text as Value,
  }
}

interface ControlProps extends FieldSpec {
  readonly value: string
  readonly onInput: (text: string) => void
}

const Control = ({
  as,
  check,
  hint,
  known,
  knownAs,
  label,
  options,
  read: _read,
  write: _write,
  ...rest
}: ControlProps) => {
  const control = { autocomplete: "off", ...rest } as {
    readonly value: string
    readonly onInput: (text: string) => void
  }
  if (as === "check") {
    return (
      <Check isChecked={control.value !== ""} onChange={(is) => control.onInput(is ? "yes" : "")}>
        {label}
      </Check>
    )
  }
  if (as === "lines")
    return <Lines {...control} {...{ label, ...(hint && { hint }), ...(known && { known, knownAs }) }} />
  return (
    <Field label={label} hint={hint} error={check?.(rest.value)}>
      {options ? (
        <Select {...control} options={options} />
      ) : as === "area" ? (
        <TextArea {...control} />
      ) : (
        <Input {...control} />
      )}
    </Field>
  )
}

/**
 * A form of the fields of a table, which begins with what is stored. When somebody else changes that meanwhile, the
 * fields that the reader has not changed follow.
 */
export const useFields = <const T extends FieldTable>(
  table: T,
  stored: Stored<T> = {},
  preset: Partial<Texts<T>> = {},
) => {
  type Name = keyof T & string
  const map = <Part,>(part: (name: Name, spec: FieldSpec) => Part) =>
    Object.fromEntries(Object.keys(table).map((name) => [name, part(name, table[name]!)]))
  const now = map((name, { read }) => read(stored[name] as never)) as Texts<T>
  const [before, setBefore] = useState(now)
  const [texts, setTexts] = useState<Texts<T>>({ ...before, ...preset })
  if (JSON.stringify(now) !== JSON.stringify(before)) {
    setBefore(now)
    setTexts(map((name) => (texts[name] === before[name] ? now[name] : texts[name])) as Texts<T>)
  }
  const set = (change: Partial<Texts<T>>) => setTexts((now) => ({ ...now, ...change }))
  const values = map((name, { write }) => write(texts[name])) as Values<T>
  const isChanged = ([name, value]: readonly [string, unknown]) =>
    JSON.stringify(value) !== JSON.stringify(table[name]!.write(before[name]!))
  /** A field, with more about its control. */
  const field = (name: Name, more: Partial<FieldSpec> = {}) => (
    <Control
      key={name}
      name={name}
      {...table[name]!}
      {...more}
      value={texts[name]}
      onInput={(text) => set({ [name]: text } as Partial<Texts<T>>)}
    />
  )
  return {
    texts,
    set,
    values,
    isValid: Object.keys(table).every((name) => table[name]!.check?.(texts[name]!) === undefined),
    /** The values that differ from what is stored. */
    changes: Object.fromEntries(Object.entries(values).filter(isChanged)) as Partial<Values<T>>,
    field,
    fields: (...names: ReadonlyArray<Name>) => names.map((name) => field(name)),
  }
}
