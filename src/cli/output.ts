import { Console, DateTime, Effect } from "effect"
import { Json } from "./flags.ts"

/** The text output of a command. */
export interface Shown {
  /** For standard output: what a script needs. */
  readonly out: string
  /** For standard error: explanations and next steps. */
  readonly note?: string | undefined
}

/** Prints the JSON document with `--json`, else the text. */
export const print = Effect.fnUntraced(function* (document: string, { note, out }: Shown) {
  if (yield* Json) return yield* Console.log(document)
  if (out !== "") yield* Console.log(out)
  if (note !== undefined && note !== "") yield* Console.error(note)
})

/** Formats rows in columns under headings. An empty or null value is shown as `-`. */
export const table = (headings: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<unknown>>): string => {
  const lines = [headings, ...rows.map((row) => row.map(cell))]
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => line[column]!.length)))
  return lines
    .map((line) =>
      line
        .map((text, column) => text.padEnd(widths[column]!))
        .join("  ")
        .trimEnd(),
    )
    .join("\n")
}

/** Replaces control characters, so that text of others (names, receivers' answers) cannot control the terminal. */
export const plain = (text: string): string =>
  // oxlint-disable-next-line no-control-regex
  text.replace(/[\u0000-\u001f\u007f-\u009f]/g, " ")

const cell = (value: unknown): string => {
  if (value === null || value === "") return "-"
  return plain(DateTime.isDateTime(value) ? DateTime.formatIso(value) : String(value))
}

/** The note that says how to get the rest of a list. */
export const more = (cursor: string | null): string | undefined =>
  cursor === null ? undefined : `There are more: continue with --cursor ${cursor}`
