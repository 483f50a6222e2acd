import type MiniSearch from "minisearch"
import { withoutNumbers } from "./docsSlugs.ts"
import { cut } from "../Schemas.ts"
import type { Language } from "./docsWords.ts"
import { splitFrontMatter, textsOf } from "./frontMatter.ts"
import { blocksOf, headingStart, type LineKind, makeLineReader, spansIn } from "./markdownCode.ts"

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
  /** Markdown as it is in the page: about 270 words, or a whole list, table or example. */
  readonly text: string
}

/** The maximum length of a passage of prose, in characters. Not every script has spaces, so words cannot be counted. */
const maxPassageLength = 1_600
/** The maximum length of a list, a table or an example in one passage. A longer one is cut between its lines. */
const maxBlockLength = 6_400

const endsWithOpenBrace = (line: string) => line.lastIndexOf("{") > line.lastIndexOf("}")

/** Whether a line begins an import or export of MDX, and is no sentence that begins with the same word. */
const isModuleLine = (line: string) =>
  (line.startsWith("import ") && (/["'];?$/.test(line.trimEnd()) || endsWithOpenBrace(line))) ||
  /^export (?:const|let|function|default|async|\{|\*)/.test(line)

/** How many more brackets a line of a program opens than it closes, outside of strings. */
const openedIn = (line: string) => {
  const brackets = line.replaceAll(/"[^"]*"|'[^']*'|`[^`]*`/g, "").match(/[()[\]{}]/g) ?? []
  return brackets.reduce((opened, bracket) => opened + ("([{".includes(bracket) ? 1 : -1), 0)
}

/** The id that a heading sets: `{#id}`, `{: #id .class }`, `[#id]`. */
const headingId = /(?:\{:? *[#.][^{}]*\}|\[#[\w.-]+\])$/

const headingText = (line: string) => {
  const text = line.replace(headingStart, "").trimEnd()
  let end = text.length
  while (text[end - 1] === "#") end--
  // "## C#" has no closing marks.
  const isMarks = end === 0 || /\s/.test(text[end - 1]!)
  return plainHeading(isMarks ? text.slice(0, end) : text)
}

/** The text of a heading, without its id, tags, comments, images, and the targets of links. */
const plainHeading = (text: string) =>
  outsideSpans(text.trim(), (piece) => withoutComments(piece).replace(tag, ""))
    .replaceAll(/!\[[^[\]]*\]\([^()\s]*(?:\s+"[^"]*")?\)/g, "")
    .replaceAll(/\[([^[\]]*)\]\([^()\s]*(?:\s+"[^"]*")?\)/g, "$1")
    .trim()
    .replace(headingId, "")
    .replaceAll("`", "")
    .trim()

/** The line under a heading. */
const underline = /^ {0,3}(?:=+|--+)[ \t]*$/
/** Whether a line with a line under it is a heading: nothing that begins something else. */
const canBeUnderlined = (line: string) => !isListOrTable(line) && !/^\s*(?:[>|<:{]|---)/.test(line)

/** A paragraph, or a list with all of its paragraphs. */
interface Paragraph {
  readonly text: string
  /** Whether it is a list or a table, or has code, which is hard to read in parts. */
  readonly isBlock: boolean
}
const isListOrTable = (text: string) => /^ {0,3}(?:[-*+] |\d+[.)] |\|)/.test(text)
const listStart = /^ {0,3}(?:[-*+]|\d+[.)]) /
/** Whether a paragraph continues a list: another item, or an indented paragraph of one. */
const continuesList = (paragraph: string) => listStart.test(paragraph) || /^(?: {2}|\t)/.test(paragraph)

/**
 * Cuts a text into pieces of at most `length` characters, at a separator when possible. Each piece is a part of the
 * text, and no other copy of it is made: a text can have megabytes.
 */
const cutAt = (text: string, length: number, separators: ReadonlyArray<string>): ReadonlyArray<string> => {
  const pieces: Array<string> = []
  const skipped = separators.includes(" ") ? /[ \n]*/y : /\n*/y
  let start = 0
  while (text.length - start > length) {
    const next = text.slice(start, start + length + 1)
    const end = Math.max(...separators.map((separator) => next.lastIndexOf(separator)))
    const at = end > length / 2 ? end : cut(next, length).length
    pieces.push(next.slice(0, at))
    skipped.lastIndex = start + at
    skipped.test(text)
    start = skipped.lastIndex
  }
  return [...pieces, text.slice(start)]
}
/** Code that a cut leaves open ends with its piece, and begins again in the next one. */
const withWholeCode = (pieces: ReadonlyArray<string>) => {
  const reader = makeLineReader()
  return pieces.map((piece) => {
    const before = reader.open()
    for (const line of piece.split("\n")) reader.read(line)
    const after = reader.open()
    return `${before === undefined ? "" : `${before.opening}\n`}${piece}${after === undefined ? "" : `\n${after.closing}`}`
  })
}
const piecesOf = ({ text, isBlock }: Paragraph): ReadonlyArray<Paragraph> => {
  if (!isBlock) return cutAt(text, maxPassageLength, [" ", "\n"]).map((piece) => ({ text: piece, isBlock }))
  if (text.length <= maxBlockLength) return [{ text, isBlock }]
  const pieces = cutAt(text, maxBlockLength, ["\n"]).flatMap((piece) =>
    piece.includes("\n") ? [piece] : cutAt(piece, maxPassageLength, [" "]),
  )
  return withWholeCode(pieces).map((piece) => ({ text: piece, isBlock }))
}

/**
 * Joins consecutive paragraphs that fit into one passage. An introduction that ends with a colon stays with what it
 * introduces.
 */
const gather = (paragraphs: ReadonlyArray<Paragraph>): ReadonlyArray<string> => {
  const texts: Array<string> = []
  for (const { text: piece, isBlock } of paragraphs.flatMap(piecesOf)) {
    const last = texts.at(-1)
    const fits = last !== undefined && last.length + piece.length + 2 <= maxPassageLength
    const introduced = last !== undefined && isBlock && last.endsWith(":") && last.length <= maxPassageLength
    if (fits || introduced) texts[texts.length - 1] = `${last}\n\n${piece}`
    else texts.push(piece)
  }
  return texts
}

interface Section {
  readonly headings: ReadonlyArray<string>
  readonly paragraphs: Array<Paragraph>
}

/** The sections of a page: the paragraphs under each heading. */
const sectionsOf = (body: string): ReadonlyArray<Section> => {
  const sections: Array<Section> = [{ headings: [], paragraphs: [] }]
  let headings: ReadonlyArray<string> = []
  let lines: Array<string> = []
  let hasCode = false
  const endParagraph = () => {
    const text = lines.join("\n").trimEnd()
    const isBlock = hasCode || isListOrTable(text)
    const { paragraphs } = sections.at(-1)!
    lines = []
    hasCode = false
    if (text === "") return
    const last = paragraphs.at(-1)
    const isWhole = last !== undefined && listStart.test(last.text) && continuesList(text)
    if (isWhole && last.text.length + text.length < maxBlockLength)
      paragraphs[paragraphs.length - 1] = { text: `${last.text}\n\n${text}`, isBlock: true }
    else paragraphs.push({ text, isBlock })
  }
  const beginSection = (level: number, text: string) => {
    headings = [...headings.slice(0, level - 1), ...Array.from({ length: level - 1 - headings.length }, () => ""), text]
    sections.push({ headings: headings.filter((heading) => heading !== ""), paragraphs: [] })
  }
  const reader = makeLineReader()
  let kind: LineKind = "prose"
  /** The brackets of an import or export that are open. A heading ends one that never closes them. */
  let opened = 0
  for (const line of body.split(/\r?\n/)) {
    if (opened > 0 && !headingStart.test(line)) {
      opened += openedIn(line)
      continue
    }
    opened = 0
    const wasIndented = kind === "indented"
    kind = reader.read(line)
    if (wasIndented && kind !== "indented") endParagraph()
    if (kind !== "prose") {
      lines.push(line)
      hasCode = true
    } else if (headingStart.test(line)) {
      endParagraph()
      beginSection(headingStart.exec(line)![1]!.length, headingText(line))
    } else if (lines.length === 1 && !hasCode && underline.test(line) && canBeUnderlined(lines[0]!)) {
      const text = plainHeading(lines.pop()!)
      endParagraph()
      beginSection(line.includes("=") ? 1 : 2, text)
    } else if (line.trim() === "") {
      endParagraph()
    } else if (isModuleLine(line)) {
      opened = openedIn(line)
    } else {
      lines.push(line)
    }
  }
  endParagraph()
  return sections
}

export const descriptionOf = ({ markdown }: Page): string => textsOf(splitFrontMatter(markdown).matter)("description")

const firstHeading = (sections: ReadonlyArray<Section>) =>
  sections.find(({ headings }) => headings.length > 0)?.headings[0]

/** The title of a page: in its front matter, or its first heading, or its slug. */
export const titleOf = ({ slug, markdown }: Page): string => {
  const { matter, body } = splitFrontMatter(markdown)
  return textsOf(matter)("title") || firstHeading(sectionsOf(body)) || slug
}

/**
 * The passages of a page, in order. A heading without text has no passage; it appears in the headings below it. A page
 * that has only a title is one passage, with its description or title as the text.
 */
export const passagesOf = ({ slug, markdown }: Page): ReadonlyArray<Passage> => {
  const { matter, body } = splitFrontMatter(markdown)
  const texts = textsOf(matter)
  const sections = sectionsOf(body)
  const named = texts("title") || firstHeading(sections)
  const title = named || slug
  const passages = sections.flatMap(({ headings, paragraphs }) => {
    const above = headings[0] === title ? headings : [title, ...headings]
    return gather(paragraphs).map((text) => ({ slug, title, heading: above.join(" › "), text }))
  })
  if (passages.length > 0 || !named) return passages
  return [{ slug, title, heading: title, text: texts("description") || title }]
}

/** A passage of an index. */
export interface Stored extends Passage {
  readonly id: number
  readonly language: Language
}

/** How much a passage is about a name. */
export const nameStrength = { mentioned: 0, inRow: 1, inReference: 2, inHeading: 3 }

/** An index of passages. */
export interface Indexed {
  readonly search: Pick<MiniSearch<Stored & { readonly more: string }>, "search">
  readonly passages: ReadonlyArray<Stored>
  /** In how many passages each word is. */
  readonly vocabulary: ReadonlyMap<string, number>
  /** The passages of each name: id × 8, plus how much the passage is about it (`nameStrength`). */
  readonly names: ReadonlyMap<string, ReadonlyArray<number>>
  readonly languages: ReadonlySet<Language>
}

/** Tags that only lay out a page. Their text stays. */
const htmlTags =
  "a|abbr|article|aside|b|br|center|cite|code|dd|details|div|dl|dt|em|figcaption|figure|footer|h[1-6]|header|hr|i|iframe|img|kbd|" +
  "li|main|mark|nav|ol|p|picture|pre|s|section|small|source|span|strong|sub|summary|sup|svg|table|tbody|td|th|thead|tr|u|ul|video"
/**
 * A component of JSX or a tag of HTML, with attributes in quotes or braces. `Promise<string>` and `<orgId>` are none.
 */
const tag = new RegExp(
  String.raw`(?:(?<!\w)<[A-Z][\w.]*|</[A-Z][\w.]*|</?(?:${htmlTags})(?=[\s/>]))(?:\s+[\w:.-]+(?:=(?:"[^"]*"|'[^']*'|\{(?:[^{}]|\{[^{}]*\})*\}))?|\s*\{\.\.\.[^{}]*\})*\s*/?>`,
  "g",
)

/** A text without what is between two marks. A mark without its end stays. */
const without = (text: string, start: string, end: string) => {
  let kept = ""
  let from = 0
  for (;;) {
    const at = text.indexOf(start, from)
    const to = at < 0 ? -1 : text.indexOf(end, at + start.length)
    if (to < 0) return kept + text.slice(from)
    kept += text.slice(from, at)
    from = to + end.length
  }
}
const withoutComments = (text: string) => without(without(text, "<!--", "-->"), "{/*", "*/}")

/** Applies a change to the text between inline code. */
const outsideSpans = (prose: string, change: (text: string) => string) => {
  let changed = ""
  let start = 0
  for (const [from, to] of spansIn(prose)) {
    changed += change(prose.slice(start, from)) + prose.slice(from, to)
    start = to
  }
  return changed + change(prose.slice(start))
}

const link = /(!?\[[^[\]\n]*\]\()([^()\s]+)((?:\s+"[^"\n]*")?\))/g
const reference = /^( {0,3}\[[^\]\n\r\u2028\u2029]+\]:[ \t]*)(\S+)/gm

/** The origin of links while the site is unknown. It is removed again. */
const nowhere = "http://docs.invalid"

/** A slug as the path of a URL that can stand in a link of Markdown. */
export const encodedSlug = (slug: string): string => {
  const parts = slug.toWellFormed().split("/").map(encodeURIComponent)
  return parts.join("/").replaceAll("(", "%28").replaceAll(")", "%29")
}

const rootOf = (docsUrl = nowhere) => (docsUrl.endsWith("/") ? docsUrl : `${docsUrl}/`)
const asLink = ({ href, origin }: URL) => (origin === nowhere ? href.slice(nowhere.length) : href)
const urlOf = (slug: string, docsUrl: string | undefined) => {
  const path = slug.replace(/^\/+/, "")
  // `index` is the slug of the page at the root.
  return new URL(path === "index" ? "" : encodedSlug(path), rootOf(docsUrl))
}

/** The address of a page: on the site of the documentation if that is known, otherwise a path from its root. */
export const pageUrl = (slug: string, docsUrl: string | undefined): string => asLink(urlOf(slug, docsUrl))

/** The slug in the address of a page, without the origin and the path of the site; other text as it is. */
export const slugAt = (address: string, docsUrl: string | undefined): string => {
  if (docsUrl === undefined) return address
  const { origin, pathname } = new URL(rootOf(docsUrl))
  const path = address.startsWith(`${origin}/`) ? new URL(address).pathname : address
  return `${path}/`.startsWith(pathname) ? path.slice(pathname.length) : address
}

/** A link of a page as an absolute address: a link to a markdown file leads to the page. */
const absolute = (target: string, slug: string, docsUrl: string | undefined) => {
  const isFromRoot = target.startsWith("/") && !target.startsWith("//")
  const file = /\.(?:mdx?|markdown)(?=[?#]|$)/i.test(target) ? withoutNumbers(target) : target
  const [path, base] = isFromRoot
    ? [slugAt(file, docsUrl).replace(/^\//, ""), rootOf(docsUrl)]
    : [file, urlOf(slug, docsUrl).href]
  if (/^[a-z][a-z\d+.-]*:/i.test(target) || !URL.canParse(path, base)) return target
  const url = new URL(path, base)
  url.pathname = url.pathname.replace(/(?:\/(?:index|readme))?\.(?:mdx?|markdown)$/i, "")
  return asLink(url)
}

/** Prose without JSX, HTML tags and comments, and with absolute links. Inline code stays as it is. */
const readableProse = (text: string, slug: string, docsUrl: string | undefined) => {
  const prose = outsideSpans(text, (piece) => withoutComments(piece).replace(tag, ""))
  const spans = spansIn(prose)
  let span = 0
  /** Whether there is code at an offset. Offsets only grow. */
  const isCode = (offset: number) => {
    while (span < spans.length && spans[span]![1] <= offset) span++
    return span < spans.length && spans[span]![0] <= offset
  }
  // The text of a link can contain inline code, and inline code can contain a link.
  return prose
    .replace(link, (whole: string, start: string, target: string, end: string, offset: number) =>
      isCode(offset) || isCode(offset + start.length) ? whole : start + absolute(target, slug, docsUrl) + end,
    )
    .replace(reference, (_, start: string, target: string) => start + absolute(target, slug, docsUrl))
    .replace(/^[ \t]+$/gm, "")
    .replace(/\n{3,}/g, "\n\n")
}

/** A passage as people read it: its prose is cleaned, and code stays byte for byte. */
export const readable = ({ slug, text }: Passage, docsUrl?: string): string =>
  blocksOf(text)
    .map((block, at) => {
      const prose = block.isCode ? block.text : readableProse(block.text, slug, docsUrl)
      return at === 0 && !block.isCode ? prose.trimStart() : prose
    })
    .join("\n")
    .replace(/^(?:[ \t]*\n)+/, "")
    .trimEnd()
