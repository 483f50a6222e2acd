/** A page of documentation, in markdown. */
export interface Page {
  readonly slug: string
  readonly markdown: string
}

/** A section of a page, or a part of it. The search returns passages; answers quote them. */
export interface Passage {
  readonly slug: string
  /** The title of the page. */
  readonly title: string
  /** The headings above the passage, the page's title first. */
  readonly heading: string
  /** Markdown, of about 270 words at most. */
  readonly text: string
}

/** The maximum length of a passage, in characters. Not every script has spaces, so words cannot be counted. */
const maxPassageLength = 1_600

const frontMatter = /^---\r?\n([\s\S]*?)\r?\n---[ \t]*(?:\r?\n|$)/

/** Splits a markdown file into its front matter and its body. */
export const splitFrontMatter = (markdown: string): { readonly matter: string; readonly body: string } => {
  const text = markdown.startsWith("\uFEFF") ? markdown.slice(1) : markdown
  const [whole, matter] = frontMatter.exec(text) ?? ["", ""]
  return { matter: matter!, body: text.slice(whole.length) }
}

const titleLine = /^title:[ \t]*(?:"([^"\n]*)"|'([^'\n]*)'|([^\n]*))$/m

const headingStart = /^ {0,3}(#{1,6})[ \t]+/
const fence = /^ {0,3}(`{3,}|~{3,})/
/** Whether a line is an import or export of MDX, and not a sentence that begins with the same word. */
const isModuleLine = (line: string) =>
  (line.startsWith("import ") && /["'];?$/.test(line.trimEnd())) ||
  /^export (?:const|let|function|default|async|\{|\*)/.test(line)

const headingText = (line: string) => {
  let text = line.replace(headingStart, "").trimEnd()
  while (text.endsWith("#")) text = text.slice(0, -1)
  return text.replaceAll("`", "").trim()
}

/** Cuts a text into pieces of at most `maxPassageLength`, at white space when possible. */
const cut = (text: string): ReadonlyArray<string> => {
  const pieces: Array<string> = []
  let rest = text
  while (rest.length > maxPassageLength) {
    const space = Math.max(rest.lastIndexOf(" ", maxPassageLength), rest.lastIndexOf("\n", maxPassageLength))
    const at = space > maxPassageLength / 2 ? space : maxPassageLength
    pieces.push(rest.slice(0, at).toWellFormed())
    rest = rest.slice(at).trimStart()
  }
  return [...pieces, rest]
}

/** Joins consecutive paragraphs that fit into one passage. */
const gather = (paragraphs: ReadonlyArray<string>): ReadonlyArray<string> => {
  const texts: Array<string> = []
  for (const piece of paragraphs.flatMap(cut)) {
    const last = texts.at(-1)
    if (last !== undefined && last.length + piece.length + 2 <= maxPassageLength)
      texts[texts.length - 1] = `${last}\n\n${piece}`
    else texts.push(piece)
  }
  return texts
}

interface Section {
  readonly headings: ReadonlyArray<string>
  readonly paragraphs: Array<string>
}

/** The sections of a page: the paragraphs under each heading. */
const sectionsOf = (body: string): ReadonlyArray<Section> => {
  const sections: Array<Section> = [{ headings: [], paragraphs: [] }]
  let headings: ReadonlyArray<string> = []
  let lines: Array<string> = []
  let closing: string | undefined
  const endParagraph = () => {
    const paragraph = lines.join("\n").trimEnd()
    if (paragraph.trim() !== "") sections.at(-1)!.paragraphs.push(paragraph)
    lines = []
  }
  for (const line of body.split(/\r?\n/)) {
    const [, mark] = fence.exec(line) ?? []
    if (closing !== undefined) {
      lines.push(line)
      if (mark?.startsWith(closing)) closing = undefined
    } else if (mark !== undefined) {
      lines.push(line)
      closing = mark
    } else if (headingStart.test(line)) {
      endParagraph()
      const level = headingStart.exec(line)![1]!.length
      headings = [...headings.slice(0, level - 1), ...Array.from({ length: level - 1 - headings.length }, () => "")]
      headings = [...headings, headingText(line)]
      sections.push({ headings: headings.filter((heading) => heading !== ""), paragraphs: [] })
    } else if (line.trim() === "") {
      endParagraph()
    } else if (!isModuleLine(line)) {
      lines.push(line)
    }
  }
  endParagraph()
  return sections
}

/** The passages of a page, in order. A heading without text has no passage; it appears in the headings below it. */
export const passagesOf = ({ slug, markdown }: Page): ReadonlyArray<Passage> => {
  const { matter, body } = splitFrontMatter(markdown)
  const sections = sectionsOf(body)
  const [, double, single, plain] = titleLine.exec(matter) ?? []
  const firstHeading = sections.find(({ headings }) => headings.length > 0)?.headings[0]
  const title = (double ?? single ?? plain)?.trim() || firstHeading || slug
  return sections.flatMap(({ headings, paragraphs }) => {
    const above = headings[0] === title ? headings : [title, ...headings]
    return gather(paragraphs).map((text) => ({ slug, title, heading: above.join(" › "), text }))
  })
}
