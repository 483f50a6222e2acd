import { useId } from "preact/hooks"
import { parseJson as parse } from "../../domain/exactJson.ts"
import { CopyButton } from "./Button.tsx"

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
  readonly text: string
  /** What the copy button copies, when that is not the text as shown. */
  readonly copied?: string
}

/** A text to read and to copy: a payload, a response, a command. */
export const Code = ({ copied, text, title }: CodeProps) => {
  const id = useId()
  return (
    <div class="code stack tight">
      <div class="row between">
        <h3 id={id}>{title}</h3>
        <CopyButton text={copied ?? text} label={`Copy: ${title}`} />
      </div>
      <pre tabIndex={0} role="region" aria-labelledby={id}>
        {text}
      </pre>
    </div>
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
    <Code title={title} text={JSON.stringify(value, null, 2)} />
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
