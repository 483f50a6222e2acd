import type { ComponentChildren } from "preact"

/** A part of a line: code, bold or slanted text, a link. The lengths are limited, so that no text takes long. */
const parts = /(`[^`\n]{1,500}`|\*\*[^*\n]{1,1000}\*\*|\*[^*\s][^*\n]{0,500}\*|\[[^\]\n]{1,300}\]\([^)\s]{1,2000}\))/

const inline = (text: string): ComponentChildren =>
  text.split(parts).map((part, i) => {
    if (i % 2 === 0) return part
    if (part.startsWith("`")) return <code key={i}>{part.slice(1, -1)}</code>
    if (part.startsWith("**")) return <strong key={i}>{inline(part.slice(2, -2))}</strong>
    if (part.startsWith("*")) return <em key={i}>{part.slice(1, -1)}</em>
    const middle = part.indexOf("](")
    const href = part.slice(middle + 2, -1)
    const label = part.slice(1, middle)
    // A page's own links lead nowhere here.
    return /^https?:\/\//.test(href) ? (
      <a key={i} href={href} target="_blank" rel="noreferrer">
        {label}
      </a>
    ) : (
      label
    )
  })

const cells = (line: string) =>
  line
    .replace(/^\s*\|/, "")
    .replace(/\|\s*$/, "")
    .split("|")
    .map((cell) => cell.trim())

const isRule = (line = "") => line.includes("-") && /^[\s|:-]+$/.test(line)
const listItem = /^\s{0,6}(?:[-*+]|\d{1,3}[.)])\s+(.*)$/

/** A quotation may be in another one; deeper ones are text. */
const maxDepth = 3

/** The blocks of a text, from its lines. */
const blocks = (lines: ReadonlyArray<string>, depth: number): ReadonlyArray<ComponentChildren> => {
  const found: Array<ComponentChildren> = []
  let at = 0
  /** The lines from here on that fit. */
  const take = (fits: (line: string) => boolean) => {
    const from = at
    while (at < lines.length && fits(lines[at]!)) at++
    return lines.slice(from, at)
  }
  while (at < lines.length) {
    const line = lines[at]!
    const heading = /^#{1,6}\s+(.*)$/.exec(line)
    if (line.trim() === "") at++
    else if (line.startsWith("```")) {
      at++
      const text = take((one) => !one.startsWith("```")).join("\n")
      at++
      found.push(
        <pre tabIndex={0} role="region" aria-label="Code">
          {text}
        </pre>,
      )
    } else if (heading !== null) {
      at++
      found.push(
        <p>
          <strong>{inline(heading[1]!)}</strong>
        </p>,
      )
    } else if (line.startsWith(">") && depth < maxDepth) {
      const quoted = take((one) => one.startsWith(">")).map((one) => one.replace(/^> ?/, ""))
      found.push(<blockquote>{blocks(quoted, depth + 1)}</blockquote>)
    } else if (line.includes("|") && isRule(lines[at + 1])) {
      const [head = "", , ...rows] = take((one) => one.includes("|"))
      found.push(
        <div class="scroll" tabIndex={0} role="region" aria-label="Table">
          <table>
            <thead>
              <tr>
                {cells(head).map((cell) => (
                  <th>{inline(cell)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr>
                  {cells(row).map((cell) => (
                    <td>{inline(cell)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>,
      )
    } else if (listItem.test(line)) {
      const List = /^\s*\d/.test(line) ? "ol" : "ul"
      const items = take((one) => listItem.test(one) || /^\s+\S/.test(one))
      // A line that continues an item belongs to it.
      const texts = items.reduce<ReadonlyArray<string>>((all, one) => {
        const item = listItem.exec(one)
        return item === null ? [...all.slice(0, -1), `${all.at(-1) ?? ""} ${one.trim()}`] : [...all, item[1]!]
      }, [])
      found.push(
        <List>
          {texts.map((text) => (
            <li>{inline(text)}</li>
          ))}
        </List>,
      )
    } else {
      const begins = (one: string) => one.trim() === "" || /^(?:```|#{1,6}\s)/.test(one) || listItem.test(one)
      const first = lines[at++]!
      found.push(
        <p>
          {inline([first, ...take((one) => !begins(one) && !(one.startsWith(">") && depth < maxDepth))].join("\n"))}
        </p>,
      )
    }
  }
  return found
}

/** Markdown as a page. It makes elements of its own alone: HTML in the text is shown as text. */
export const Markdown = ({ text }: { readonly text: string }) => (
  <div class="markdown">{blocks(text.split("\n"), 0)}</div>
)
