import { Console, DateTime, Effect } from "effect"
import { Json } from "./flags.ts"

/** What a command says to a person. */
export interface Shown {
  /** On standard output: what a script would want to keep. */
  readonly out: string
  /** On standard error: what it means, and what may come next. */
  readonly note?: string | undefined
}

/** Prints one or the other: the JSON document with `--json`, else the words. */
export const print = Effect.fnUntraced(function* (document: string, { note, out }: Shown) {
  if (yield* Json) return yield* Console.log(document)
  if (out !== "") yield* Console.log(out)
  if (note !== undefined && note !== "") yield* Console.error(note)
})

/** Rows in columns under a heading; a row that is empty says that there are none. */
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

/** What others wrote (names, receivers' answers) must not steer the terminal. */
export const plain = (text: string): string =>
  // oxlint-disable-next-line no-control-regex
  text.replace(/[\u0000-\u001f\u007f-\u009f]/g, " ")

const cell = (value: unknown): string => {
  if (value === null || value === "") return "-"
  return plain(DateTime.isDateTime(value) ? DateTime.formatIso(value) : String(value))
}

/** How to get the rest of a list. */
export const more = (cursor: string | null): string | undefined =>
  cursor === null ? undefined : `There are more: continue with --cursor ${cursor}`
