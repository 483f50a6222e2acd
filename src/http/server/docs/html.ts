const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
}

/** Text as HTML. */
export const escape = (text: string): string => text.replace(/[&<>"']/g, (character) => entities[character]!)

/** The Markdown of one line: code, bold text and links. */
const inline = (text: string) =>
  escape(text)
    .replace(/`([^`]+)`/g, "<code>$1</code>")
    .replace(/\*\*([^*]+)\*\*/g, "<strong>$1</strong>")

/** The Markdown of descriptions: paragraphs of lines. */
export const paragraphs = (markdown: string): string =>
  markdown
    .split("\n\n")
    .map((paragraph) => `<p>${inline(paragraph)}</p>`)
    .join("")

export const sentence = inline

/** The id of an element, from any text. */
export const idOf = (text: string): string => text.toLowerCase().replace(/[^a-z0-9]+/g, "-")

/** A value as indented JSON. */
export const json = (value: unknown): string => escape(JSON.stringify(value, null, 2))
