import { Clock, Config, Console, Data, DateTime, Effect, Option, Stdio } from "effect"
import { type CliError, CliOutput } from "effect/cli"
import { usageExitCode } from "../boot/exitCodes.ts"
import { controlCharacters } from "../domain/Schemas.ts"
import { Json } from "./flags.ts"

/** Rows under headings. */
export interface Table {
  readonly headings: ReadonlyArray<string>
  readonly rows: ReadonlyArray<ReadonlyArray<unknown>>
  /** Whether the headings were printed before, with an earlier page. */
  readonly isContinued?: boolean
}

/** The text output of a command. */
interface Shown {
  /** For standard output: what a script needs. Tables have an empty line between them. */
  readonly out: string | Table | ReadonlyArray<Table>
  /** For standard error: explanations and next steps. */
  readonly note?: string | undefined
}

/** What a command shows: a table, an output with a note, or only a sentence. */
export type Output = Shown | Table | string

const shownOf = (output: Output): Shown => {
  if (typeof output === "string") return { out: "", note: output }
  return "rows" in output ? { out: output } : output
}

/** Prints the JSON document with `--json`, else the text. */
export const print = Effect.fnUntraced(function* (document: string, output: Output) {
  if (yield* Json) return yield* Console.log(document)
  const { note, out } = shownOf(output)
  const text = typeof out === "string" ? out : renderAll("rows" in out ? [out] : out, yield* style)
  if (text !== "") yield* Console.log(text)
  if (note !== undefined && note !== "") yield* Console.error(note)
})

/** A table for `print`. An empty or null value is shown as `-`, an object as JSON. */
export const table = (headings: ReadonlyArray<string>, rows: ReadonlyArray<ReadonlyArray<unknown>>): Table => ({
  headings,
  rows,
})

/** A table with a column for each heading: a field of the rows, or what a function makes of a row. */
export const columns = <A extends object>(
  rows: ReadonlyArray<A>,
  columns: Readonly<Record<string, keyof A | ((row: A) => unknown)>>,
): Table =>
  table(
    Object.keys(columns),
    rows.map((row) => Object.values(columns).map((one) => (typeof one === "function" ? one(row) : row[one]))),
  )

/** How values are shown: for people at a terminal, with colours and relative times, or for scripts. */
interface Style {
  readonly isTerminal: boolean
  readonly hasColour: boolean
  readonly now: number
}

const style = Effect.gen(function* () {
  const isTerminal = yield* (yield* Stdio.Stdio).stdoutIsTerminal
  const noColour = yield* Effect.orDie(Config.option(Config.String("NO_COLOR")))
  return {
    isTerminal,
    hasColour: isTerminal && Option.getOrElse(noColour, () => "") === "",
    now: yield* Clock.currentTimeMillis,
  } satisfies Style
})

const renderAll = (tables: ReadonlyArray<Table>, style: Style) => tables.map((one) => render(one, style)).join("\n\n")

/** Characters that take two columns of a terminal, and those that take none. */
const wide = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Hangul}\p{Emoji_Presentation}\u3000-\u303f\uff01-\uff60]/gu
const unseen = /[\p{Mn}\p{Me}\p{Cf}]/gu

/** The columns that a text takes in a terminal. */
const widthOf = (text: string) => [...text.replace(unseen, "")].length + (text.match(wide)?.length ?? 0)

const render = ({ headings, isContinued = false, rows }: Table, style: Style): string => {
  const texts = rows.map((row) => row.map((value) => cell(value, style)))
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, ...texts.map((line) => widthOf(line[column]!))),
  )
  const line = (cells: ReadonlyArray<string>, paint: (text: string, column: number) => string) =>
    cells
      .map((text, column) => {
        const padding = column === headings.length - 1 ? "" : " ".repeat(widths[column]! - widthOf(text))
        return `${paint(text, column)}${padding}`
      })
      .join("  ")
      .trimEnd()
  const paint = (text: string, column: number) =>
    style.hasColour && stateHeading.test(headings[column]!) ? coloured(text) : text
  return [...(isContinued ? [] : [line(headings, (text) => text)]), ...texts.map((cells) => line(cells, paint))].join(
    "\n",
  )
}

/** The columns whose words have a colour. */
const stateHeading = /^(?:STATE|STATUS|ACTIVE)$/

const colours: Readonly<Record<string, number>> = {
  completed: 32,
  delivered: 32,
  yes: 32,
  failed: 31,
  no: 31,
  pending: 33,
  queued: 33,
  running: 36,
  canceled: 90,
  skipped: 90,
}
const coloured = (text: string) => {
  const colour = Object.hasOwn(colours, text) ? colours[text] : undefined
  return colour === undefined ? text : `\u001b[${colour}m${text}\u001b[0m`
}

/** Replaces what would let text of others (names, receivers' answers) control the terminal. */
export const plain = (text: string): string => text.replace(controlCharacters, " ")

const cell = (value: unknown, { isTerminal, now }: Style): string => {
  if (value === null || value === undefined || value === "") return "-"
  if (typeof value === "boolean") return value ? "yes" : "no"
  if (!DateTime.isDateTime(value)) return plain(typeof value === "object" ? JSON.stringify(value) : String(value))
  return isTerminal ? relativeTime(DateTime.toEpochMillis(value), now) : DateTime.formatIso(value)
}

/** In seconds, the largest first. */
const units = [
  ["d", 86_400],
  ["h", 3_600],
  ["min", 60],
  ["s", 1],
] as const

/** A time as seen from now: `3 min ago`, `in 2 h`. */
export const relativeTime = (millis: number, now: number): string => {
  const seconds = Math.round(Math.abs(millis - now) / 1000)
  const [unit, length] = units.find(([, length]) => seconds >= length) ?? ["s", 1]
  const amount = `${Math.floor(seconds / length)} ${unit}`
  if (seconds === 0) return "now"
  return millis < now ? `${amount} ago` : `in ${amount}`
}

/** The note that says how to get the rest of a list. */
export const more = (cursor: string | null): string | undefined =>
  cursor === null ? undefined : `There are more: continue with --cursor ${cursor}`

/** A command has failed. `message` is one line for the user: what is wrong and what to do. */
export class CommandFailed extends Data.TaggedError("CommandFailed")<{
  readonly message: string
  /** Default: 1. `usageExitCode` for a wrong invocation. */
  readonly exitCode?: number
}> {}

/** Fails when nobody reads standard output any more: `head` has what it wants. That is no failure of the command. */
const readerLeft = Effect.callback<never, CommandFailed>((resume) => {
  const onError = ({ code }: NodeJS.ErrnoException) => {
    if (code === "EPIPE") resume(new CommandFailed({ message: "", exitCode: 0 }))
  }
  process.stdout.on("error", onError)
  return Effect.sync(() => process.stdout.off("error", onError))
})

/** Ends what prints for long, and changes nothing, when its reader has left. */
export const whileRead = <A, E, R>(printing: Effect.Effect<A, E, R>) => Effect.raceFirst(printing, readerLeft)

/** The failure of a command: exit code 1. */
export const failure = (message: string) => new CommandFailed({ message })

/** The failure of a wrong invocation: exit code 2. */
export const usage = (message: string) => new CommandFailed({ message, exitCode: usageExitCode })

/** What is wrong with an invocation, in one line. */
const faultOf = (error: CliError.CliError) => {
  // Only the first line: the others repeat the suggestions.
  const [fault] = error.message.replace("Expected: Schema validation failed: ", "").split("\n", 1)
  const suggestions = "suggestions" in error ? error.suggestions : []
  return suggestions.length === 0 ? fault : `${fault} (did you mean ${suggestions.join(" or ")}?)`
}

/**
 * Prints requested help on standard output and usage errors on standard error, so that scripts do not read help as
 * output.
 */
export const presenter: CliOutput.Presenter = {
  present: Effect.fnUntraced(function* (event) {
    if (event._tag === "InvalidInvocation") {
      const faults = event.errors.map(faultOf).join("; ")
      return yield* Console.error(`gatehouse: ${faults}; see ${event.commandPath.join(" ")} --help`)
    }
    if (event._tag === "Help" && event.reason === "Implicit") {
      return yield* Console.error((yield* CliOutput.Formatter).formatHelpDoc(event.helpDoc))
    }
    yield* CliOutput.defaultPresenter.present(event)
  }),
}
