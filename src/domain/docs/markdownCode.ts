/** What a line of markdown is. The lines of a fence are a part of its code. */
export type LineKind = "prose" | "fenced" | "indented"

export const headingStart = /^ {0,3}(#{1,6})[ \t]+/

/** The marks of block quotes, also of one that begins in a list's item. */
const quoteMarks = /^(?:[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?>)+ ?/
const listItem = /[ \t]*(?:[-*+]|\d{1,9}[.)])(?=[ \t]|$)[ \t]?/y
/** Lists in lists that are followed. */
const maxListDepth = 16

/** The columns of the white space that a text begins with. */
const indentOf = (text: string) => {
  let columns = 0
  for (const char of text) {
    if (char !== " " && char !== "\t") break
    columns += char === "\t" ? 4 - (columns % 4) : 1
  }
  return columns
}

/** A fence or a `<pre>` that is open. */
interface OpenCode {
  /** Opens it again, when a text is cut. */
  readonly opening: string
  readonly closing: string
  /** The fence's marks; "" for `<pre>`. */
  readonly marks: string
  readonly isQuoted: boolean
  /** The closing fence is indented at most so much. */
  readonly maxIndent: number
}

const isEnd = ({ marks, isQuoted, maxIndent }: OpenCode, line: string) => {
  if (marks === "") return line.toLowerCase().includes("</pre>")
  const text = isQuoted ? line.replace(quoteMarks, "") : line
  const mark = text.trim()
  return mark.startsWith(marks) && mark === marks[0]!.repeat(mark.length) && indentOf(text) <= maxIndent
}

/** The code that a line opens, when it has a fence or `<pre>` after the marks of what holds it. */
const openedBy = (line: string, start: number, base: number, isQuoted: boolean): OpenCode | undefined => {
  const rest = line.slice(start)
  const text = rest.trimStart()
  const [marks] = /^(?:`{3,}|~{3,})/.exec(text) ?? [""]
  const isPre = /^<pre[\s>]/i.test(text) && !text.toLowerCase().includes("</pre>")
  // "```a``` b" is inline code.
  if (!isPre && (marks === "" || (marks[0] === "`" && text.includes("`", marks.length)))) return undefined
  const lead = line.slice(0, line.length - text.length).replaceAll(/[^\t>]/g, " ")
  const code = isPre ? { opening: "<pre>", closing: "</pre>" } : { opening: lead + text, closing: lead + marks }
  return { ...code, marks, isQuoted, maxIndent: Math.max(base + 3, indentOf(rest)) }
}

/**
 * Reads markdown or MDX line by line and says which lines are code: fences at any depth of lists, block quotes and
 * components, `<pre>`, and indented code. In doubt a line is code, because code is quoted as it is.
 */
export const makeLineReader = () => {
  let open: OpenCode | undefined
  /** The columns at which the content of the open list items begins. */
  let items: Array<number> = []
  let quotes = 0
  /** The open components. Markdown in them may be indented. */
  let components = 0
  /** Whether indented code can begin: not in a paragraph. */
  let canBegin = true
  let kind: LineKind = "prose"
  const base = () => items.at(-1) ?? 0
  const isIndented = (text: string) => canBegin && components === 0 && indentOf(text) - base() >= 4

  const readProse = (line: string): LineKind => {
    const marks = isIndented(line) && quotes === 0 ? "" : (quoteMarks.exec(line)?.[0] ?? "")
    const depth = marks.split(">").length - 1
    if (depth !== quotes) [items, canBegin, quotes] = [[], true, depth]
    let text = line.slice(marks.length)
    if (text.trim() === "") {
      canBegin = true
      return kind === "indented" ? kind : "prose"
    }
    const leave = (indent: number) => (items = items.filter((column) => column <= indent))
    if (canBegin) leave(indentOf(text))
    if (isIndented(text)) return "indented"
    let column = 0
    for (let level = 0; level < maxListDepth; level++) {
      listItem.lastIndex = 0
      const [item] = listItem.exec(text) ?? []
      if (item === undefined) break
      leave(column + indentOf(text))
      text = text.slice(item.length)
      column += indentOf(item) + item.trim().length + 1
      const more = indentOf(text)
      items.push(column + (more < 4 ? more : 0))
    }
    open = openedBy(line, line.length - text.length, base(), depth > 0)
    if (open !== undefined) return "fenced"
    const tag = text.trim()
    if (/^<\/[A-Z]/.test(tag) || (tag.endsWith("/>") && !tag.includes("<"))) components = Math.max(components - 1, 0)
    else if (/^<[A-Z][\w.]*(?:>$|\s|$)/.test(tag) && !tag.includes("</") && !tag.endsWith("/>")) components++
    canBegin = headingStart.test(text)
    return "prose"
  }

  return {
    read: (line: string): LineKind => {
      // A quotation that ends, ends its code.
      if (open?.isQuoted === true && !quoteMarks.test(line)) open = undefined
      if (open === undefined) return (kind = readProse(line))
      if (isEnd(open, line)) open = undefined
      canBegin = true
      return (kind = "fenced")
    },
    open: () => open,
  }
}

/** The parts of a text that are code and those that are not, in order, without the line breaks between them. */
export const blocksOf = (text: string): ReadonlyArray<{ readonly isCode: boolean; readonly text: string }> => {
  const reader = makeLineReader()
  const blocks: Array<{ readonly isCode: boolean; readonly lines: Array<string> }> = []
  for (const line of text.split("\n")) {
    const isCode = reader.read(line) !== "prose"
    const last = blocks.at(-1)
    if (last?.isCode === isCode) last.lines.push(line)
    else blocks.push({ isCode, lines: [line] })
  }
  return blocks.map(({ isCode, lines }) => ({ isCode, text: lines.join("\n") }))
}

/** The spans of inline code in prose, as offsets: what is between two equal runs of backticks of a paragraph. */
export const spansIn = (prose: string): ReadonlyArray<readonly [from: number, to: number]> => {
  // A blank line ends a paragraph, and so what waits for its closing run.
  const runs = [...prose.matchAll(/`+|\n[ \t]*(?=\n)/g)].map(([run], at, all) => ({ run, from: all[at]!.index }))
  const closing = new Map<string, number>()
  const next: Array<number | undefined> = []
  for (let at = runs.length - 1; at >= 0; at--) {
    const { run } = runs[at]!
    if (run.startsWith("\n")) closing.clear()
    else {
      next[at] = closing.get(run)
      closing.set(run, at)
    }
  }
  const spans: Array<readonly [number, number]> = []
  for (let at = 0; at < runs.length; at++) {
    const { run, from } = runs[at]!
    const end = next[at]
    const isEscaped = run === "`" && /(?<!\\)\\(?:\\\\)*$/.test(prose.slice(Math.max(from - 8, 0), from))
    if (end === undefined || isEscaped) continue
    spans.push([from, runs[end]!.from + run.length])
    at = end
  }
  return spans
}
