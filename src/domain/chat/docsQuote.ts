import type { Passage } from "./DocsPassages.ts"

/** Tags that only lay out a page. Their text stays. */
const htmlTags =
  "a|abbr|article|aside|b|br|center|cite|code|dd|details|div|dl|dt|em|figcaption|figure|footer|h[1-6]|header|hr|i|iframe|img|kbd|" +
  "li|main|mark|nav|ol|p|picture|pre|s|section|small|source|span|strong|sub|summary|sup|svg|table|tbody|td|th|thead|tr|u|ul|video"
/** A component of JSX or a tag of HTML, with attributes in quotes or braces. `Promise<string>` and `<orgId>` are none. */
const tag = new RegExp(
  String.raw`(?:(?<!\w)<[A-Z][\w.]*|</[A-Z][\w.]*|</?(?:${htmlTags})(?=[\s/>]))(?:\s+[\w:.-]+(?:=(?:"[^"]*"|'[^']*'|\{(?:[^{}]|\{[^{}]*\})*\}))?|\s*\{\.\.\.[^{}]*\})*\s*/?>`,
  "g",
)
const comment = /<!--[\s\S]*?-->|\{\/\*[\s\S]*?\*\/\}/g
/** Examples and inline code, which stay as they are. */
const code = /(^ {0,3}(`{3,}|~{3,})[^\n]*\n[\s\S]*?(?:^ {0,3}\2[`~]*[ \t]*$|(?![\s\S]))|`+[^`\n]*`+)/m

/** Applies a change to the text between examples and inline code. */
const outsideCode = (text: string, change: (prose: string) => string) =>
  text
    .split(new RegExp(code.source, "gm"))
    .map((piece, at) => (at % 3 === 0 ? change(piece) : at % 3 === 1 ? piece : ""))
    .join("")

const link = /(!?\[[^\]\n]*\]\()([^()\s]+)((?:\s+"[^"\n]*")?\))/g
const reference = /^( {0,3}\[[^\]\n]+\]:\s*)(\S+)/gm

/** The origin of links while the site is unknown. It is removed again. */
const nowhere = "http://docs.invalid"

const rootOf = (docsUrl = nowhere) => (docsUrl.endsWith("/") ? docsUrl : `${docsUrl}/`)
const asLink = ({ href, origin }: URL) => (origin === nowhere ? href.slice(nowhere.length) : href)
const urlOf = (slug: string, docsUrl: string | undefined) => {
  const path = slug.replace(/^\/+/, "")
  // `index` is the slug of the page at the root.
  return new URL(path === "index" ? "" : path.split("/").map(encodeURIComponent).join("/"), rootOf(docsUrl))
}

/** The address of a page: on the site of the documentation if that is known, otherwise a path from its root. */
export const pageUrl = (slug: string, docsUrl: string | undefined): string => asLink(urlOf(slug, docsUrl))

/** A link of a page as an absolute address, without the extension of a markdown file. */
const absolute = (target: string, slug: string, docsUrl: string | undefined) => {
  const isFromRoot = target.startsWith("/") && !target.startsWith("//")
  const [path, base] = isFromRoot ? [target.slice(1), rootOf(docsUrl)] : [target, urlOf(slug, docsUrl).href]
  if (/^[a-z][a-z\d+.-]*:/i.test(target) || !URL.canParse(path, base)) return target
  const url = new URL(path, base)
  url.pathname = url.pathname.replace(/(?:\/index)?\.mdx?$/i, "")
  return asLink(url)
}

/**
 * A passage as people read it: without JSX, HTML tags and comments, and with absolute links. Examples and inline code stay
 * byte for byte.
 */
export const readable = ({ slug, text }: Passage, docsUrl?: string): string => {
  const absoluteLink = (_: string, start: string, target: string, end = "") =>
    start + absolute(target, slug, docsUrl) + end
  const joined = outsideCode(text, (prose) => prose.replace(comment, "").replace(tag, ""))
  return linksIn(joined, absoluteLink)
    .replace(/^[ \t]+$/gm, "")
    .replace(/\n{3,}/g, "\n\n")
    .trim()
}

/** Replaces links. The text of a link can contain inline code, so only examples are left out. */
const linksIn = (text: string, change: (...match: Array<string>) => string) =>
  text
    .split(/(^ {0,3}(?:```|~~~)[\s\S]*?(?:^ {0,3}(?:```|~~~)[ \t]*$|(?![\s\S])))/m)
    .map((piece, at) =>
      at % 2 === 1 ? piece : piece.replace(link, change).replace(reference, (m, a, b) => change(m, a, b)),
    )
    .join("")
