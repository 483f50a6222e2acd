import type { ComponentChildren, VNode } from "preact"
import { useId, useMemo, useState } from "preact/hooks"
import { parseJson as parse } from "../../domain/exactJson.ts"
import { Button, CopyButton } from "./Button.tsx"
import { counted } from "./numbers.ts"

/** JSON with an indentation for people; another text stays as it is. */
export const pretty = (text: string) => {
  try {
    return JSON.stringify(parse(text), null, 2)
  } catch {
    return text
  }
}

interface CodeProps {
  readonly title: string
  /** What the button copies. */
  readonly text: string
  /** What is shown in the place of the text. */
  readonly children?: ComponentChildren
}

/** A text to read and to copy: a payload, a response, a command. */
export const Code = ({ children, text, title }: CodeProps) => {
  const id = useId()
  return (
    <div class="code stack tight">
      <div class="row between">
        <h3 id={id}>{title}</h3>
        <CopyButton text={text} label={`Copy: ${title}`} />
      </div>
      <pre tabIndex={0} role="region" aria-labelledby={id}>
        {children ?? text}
      </pre>
    </div>
  )
}

interface Lines {
  readonly lines: ReadonlyArray<string>
  /** For a line that opens an object or an array, the line that closes it. */
  readonly ends: ReadonlyMap<number, number>
}

/** A larger text begins with its outermost object or array open, and the others folded. */
const maxOpenLines = 500
/** So many lines of an object or an array are shown at once. */
const shownLines = 200

/** The parts of a line of printed JSON: spaces, a name, what parts it from its value, the value, and what follows. */
const parts = /^( *)(?:("[^"\\]*(?:\\.[^"\\]*)*")(: ))?(.*?)(,?)$/

const kindOf = (value: string) =>
  value.startsWith('"') ? "text" : /^[-\d]/.test(value) ? "number" : /^[a-z]/.test(value) ? "word" : undefined

const Coloured = ({ line }: { readonly line: string }) => {
  const [, indent, name, colon, value, comma] = parts.exec(line) ?? ["", "", undefined, "", line, ""]
  return (
    <>
      {indent}
      {name !== undefined && <span class="name">{name}</span>}
      {colon}
      <span class={kindOf(value!)}>{value}</span>
      {comma}
    </>
  )
}

/** An object or an array: it is rendered while it is open. */
const Fold = ({ at, of }: { readonly of: Lines; readonly at: number }) => {
  const end = of.ends.get(at)!
  const [isOpen, setOpen] = useState(at === 0 || of.lines.length <= maxOpenLines)
  return (
    <details open={isOpen} onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
      <summary data-line={at + 1}>
        <Coloured line={of.lines[at]!} />
        {!isOpen && (
          <>
            {` … ${of.lines[end]!.trim()} `}
            <span class="quiet">{counted(end - at - 1, "line")}</span>
          </>
        )}
      </summary>
      {isOpen && <Rows of={of} from={at + 1} until={end + 1} />}
    </details>
  )
}

/** The lines from one until another, with what they open as parts to fold. */
const Rows = ({ from, of, until }: { readonly of: Lines; readonly from: number; readonly until: number }) => {
  const [count, setCount] = useState(shownLines)
  const rows: Array<VNode> = []
  let at = from
  for (; at < until && rows.length < count; at = (of.ends.get(at) ?? at) + 1)
    rows.push(
      of.ends.has(at) ? (
        <Fold key={at} of={of} at={at} />
      ) : (
        <span key={at} class="line" data-line={at + 1}>
          <Coloured line={of.lines[at]!} />
        </span>
      ),
    )
  return (
    <>
      {rows}
      {at < until && (
        <span class="line">
          <Button isSmall onClick={() => setCount(count + shownLines)}>
            Show more of {counted(until - at, "line")}
          </Button>
        </span>
      )}
    </>
  )
}

/** The lines of JSON, and what they open; undefined for another text, and for what has one line. */
const readLines = (text: string): Lines | undefined => {
  const printed = pretty(text)
  if (printed === text && parseJson(text).error !== undefined) return undefined
  const lines = printed.split("\n")
  const ends = new Map<number, number>()
  const open: Array<number> = []
  for (const [at, line] of lines.entries()) {
    if (/^ *[}\]]/.test(line)) ends.set(open.pop()!, at)
    if (/[{[]$/.test(line)) open.push(at)
  }
  return lines.length === 1 ? undefined : { lines, ends }
}

/** JSON that is read: in colours, with numbers of its lines, and parts to fold. Another text stays as it is. */
export const JsonText = ({ text, title }: Omit<CodeProps, "children">) => {
  const of = useMemo(() => readLines(text), [text])
  return (
    <Code title={title} text={text}>
      {of && (
        <div class="json" key={text}>
          <Rows of={of} from={0} until={of.lines.length} />
        </div>
      )}
    </Code>
  )
}

/** A JSON value, or what stands for none. */
export const Json = ({
  none,
  title,
  value,
}: {
  readonly title: string
  readonly value: unknown
  readonly none: string
}) =>
  value === null || value === undefined ? (
    <div class="code stack tight">
      <h3>{title}</h3>
      <p class="quiet">{none}</p>
    </div>
  ) : (
    <JsonText title={title} text={JSON.stringify(value, null, 2)} />
  )

/** The JSON object of a text; undefined for another text. */
export const objectOf = (text: string) => {
  const { value } = parseJson(text)
  // A raw number is an object without a prototype.
  return value instanceof Object && !Array.isArray(value) ? (value as Record<string, unknown>) : undefined
}

/** Reads a JSON text that a person types; the error is for the field. */
export const parseJson = (text: string): { readonly value?: unknown; readonly error?: string } => {
  try {
    return { value: parse(text) }
  } catch (error) {
    // "… (line 2 column 6)"; none when it ends too early.
    const [, line, column] = /line (\d+) column (\d+)/.exec(String(error)) ?? []
    const place = line === undefined ? "" : `: see line ${line}, column ${column}`
    return { error: `Not valid JSON${place}. Texts need double quotes; no comma follows the last item.` }
  }
}
