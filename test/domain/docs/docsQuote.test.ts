import { describe, expect, it } from "vitest"
import { pageUrl, passagesOf, readable, slugAt, titleOf } from "#src/domain/docs/DocsPassages.ts"

const passage = (text: string, slug = "guides/keys") => ({ slug, title: "Keys", heading: "Keys", text })

describe("a quoted passage", () => {
  it("has no JSX, tags or comments, and keeps its text", () => {
    const text = [
      '<Note type="warning" items={[{ a: 1 }]}>',
      "  Mind this.",
      "</Note>",
      "{/* hidden */}<!-- hidden -->",
      "<Card.Grid /> One<br/>line, <a href='x'>linked</a>.",
    ].join("\n")
    expect(readable(passage(text))).toBe("Mind this.\n\n Oneline, linked.")
  })

  it("keeps examples, inline code and text that only resembles a tag", () => {
    const text = "`<Note>` and Promise<String> for <orgId>, a < b > c\n\n```tsx\n<Note>{/* x */}</Note>\n```"
    expect(readable(passage(text))).toBe(text)
  })

  // Seen failing: tags, imports and blank lines of these vanished, or links in them were changed.
  const code = [
    'import { a } from "b"',
    "<Note>{/* kept */}</Note> <!-- kept -->",
    "",
    "",
    "",
    "[kept](../a.md)",
    "# kept",
    "  ",
    "export default a",
  ]
  const under = (lead: string) => code.map((line) => (lead + line).replace(/^ +$/, "")).join("\n")
  const held: Record<string, string> = {
    "a fence": `\`\`\`tsx\n${code.join("\n")}\n\`\`\``,
    "a fence that has another fence": `\`\`\`\`md\n\`\`\`tsx\n${code.join("\n")}\n\`\`\`\n\`\`\`\``,
    "a fence with the beginning of another": `~~~\n~~~tsx\n${code.join("\n")}\n~~~`,
    "a fence in a list": `1. Do:\n\n    \`\`\`tsx\n${under("    ")}\n    \`\`\``,
    "a fence in a list of a list": `- a\n\n  - b\n\n      ~~~tsx\n${under("      ")}\n      ~~~`,
    "a fence that begins an item": `- \`\`\`tsx\n${under("  ")}\n  \`\`\``,
    "a fence in a block quote": `> \`\`\`tsx\n${code.map((line) => `> ${line}`).join("\n")}\n> \`\`\``,
    "a fence in a block quote of an item": `- > ~~~\n${code.map((line) => `  > ${line}`).join("\n")}\n  > ~~~`,
    "a fence that its block quote ends": `> ~~~\n${code.map((line) => `> ${line}`).join("\n")}`,
    "a fence deep in a component": `Do:\n\n      \`\`\`tsx\n${under("      ")}\n      \`\`\``,
    "indented code": `Do:\n\n${under("    ")}`,
    "code indented by a tab": `Do:\n\n${under("\t")}`,
    "code indented in a list": `- Do:\n\n${under("      ")}`,
    pre: `<pre>\n${code.join("\n")}\n</pre>`,
  }
  for (const [what, text] of Object.entries(held)) {
    it(`has every byte of ${what}`, () => {
      const markdown = `# T\n\n<Steps>\n\n</Steps>\n\n${text}\n\nAfter <b>it</b>.\n`
      const passages = passagesOf({ slug: "guides/keys", markdown })
      expect(passages.map((found) => readable(found)).join("\n\n")).toBe(`${text}\n\nAfter it.`)
    })
  }
  it("has every byte of a fence deep in a component that is open", () => {
    const fence = `        \`\`\`tsx\n${under("        ")}\n        \`\`\``
    const markdown = `# T\n\n<Steps>\n    <Step title="a">\n        One <b>step</b>.\n\n${fence}\n    </Step>\n</Steps>`
    const [found] = passagesOf({ slug: "s", markdown })
    expect(readable(found!)).toBe(`One step.\n\n${fence}`)
  })
  it("has every line of code that is too long for one passage, in fences of its own", () => {
    const lines = Array.from({ length: 900 }, (_, n) => `<Note id="${n}">a  b</Note>`)
    for (const lead of ["", "> ", "      "]) {
      const fence = ["```tsx", ...lines, "```"].map((line) => lead + line)
      const passages = passagesOf({ slug: "s", markdown: `# T\n\nDo:\n${fence.join("\n")}` })
      const quoted = passages.map((found) => readable(found))
      expect(quoted.length).toBeGreaterThan(2)
      expect(quoted.flatMap((text) => text.split("\n")).filter((line) => line.includes("Note"))).toEqual(
        lines.map((line) => lead + line),
      )
      for (const text of quoted) expect(text.match(/```/g)).toHaveLength(2)
    }
  })
  it("keeps inline code with backticks, links and line breaks", () => {
    for (const text of [
      "a ``<b> `[x](y.md)` </b>`` b",
      "a `[x](y.md)` and `<b>\n</b>` b",
      "a `<b>` `</b>` `` ` `` `{/* x */}` b",
    ])
      expect(readable(passage(text))).toBe(text)
    expect(readable(passage("a \\` <b>b</b> [`c`](d.md) ```` e"))).toBe("a \\` b [`c`](/guides/d) ```` e")
  })

  it("has absolute links", () => {
    const text =
      "[a](../access.md#modes) [b](/api/x) [c](https://e.com/x.md) [d](#here) ![e](./1-pic.png) [`f`](02-other.mdx)\n\n[g]: next/index.md"
    expect(readable(passage(text))).toBe(
      "[a](/access#modes) [b](/api/x) [c](https://e.com/x.md) [d](/guides/keys#here) ![e](/guides/1-pic.png) [`f`](/guides/other)\n\n[g]: /guides/next",
    )
    expect(readable(passage("[a](../access.md) [b](/x)"), "https://docs.example.com/v1")).toBe(
      "[a](https://docs.example.com/v1/access) [b](https://docs.example.com/v1/x)",
    )
    // Seen failing: the path of the site was added to a link that has it.
    expect(readable(passage("[a](/docs/access.md) [b](/docsearch) [c](/docs)"), "https://e.com/docs")).toBe(
      "[a](https://e.com/docs/access) [b](https://e.com/docs/docsearch) [c](https://e.com/docs/)",
    )
    expect(readable(passage("[a](README.md) [b](../a/README.md#c)"))).toBe("[a](/guides) [b](/a#c)")
    expect(pageUrl("index", "https://e.com/docs")).toBe("https://e.com/docs/")
    expect(pageUrl("a/index", "https://e.com/docs")).toBe("https://e.com/docs/a/index")
    expect(pageUrl("a b/ü", "https://e.com/")).toBe("https://e.com/a%20b/%C3%BC")
    // Seen failing: a URIError, which was a 500 of the chat; and ) ended the link in Markdown.
    expect(pageUrl("a\ud800/b)c(d", "https://e.com/")).toBe("https://e.com/a%EF%BF%BD/b%29c%28d")
  })
})

describe("the address of a page", () => {
  it("is its slug after the origin and the path of the site", () => {
    const site = "https://e.com/docs"
    for (const address of ["/docs/a/b", "https://e.com/docs/a/b", "https://e.com/docs/a/b?c=d#e"])
      expect(slugAt(address, site), address).toBe("a/b")
    expect(slugAt("/docs", site)).toBe("")
    expect(slugAt("/a/b", "https://e.com")).toBe("a/b")
    for (const other of ["a/b", "/docsearch/a", "/a/b", "https://e.com/a", "https://other.com/docs/a", "C#", "a?b"])
      expect(slugAt(other, site), other).toBe(other)
    expect(slugAt("https://e.com/docs/a", undefined)).toBe("https://e.com/docs/a")
  })
})

describe("passages", () => {
  const texts = (markdown: string) => passagesOf({ slug: "s", markdown }).map(({ text }) => text)

  it("keep lists, tables and examples whole, with their introduction", () => {
    const list = Array.from({ length: 60 }, (_, n) => `- item ${n} of a list that is longer than a passage of prose`)
    const table = [
      "| name | meaning |",
      "| --- | --- |",
      ...Array.from({ length: 50 }, (_, n) => `| n${n} | a meaning of it that is long |`),
    ]
    for (const lines of [list, table, ["```sh", ...list, "```"]]) {
      const block = lines.join("\n")
      expect(texts(`# T\n\nThese are all:\n\n${block}\n\nAfter it.`)[0]).toBe(`These are all:\n\n${block}`)
    }
    const loose = "- one\n\n  more of one\n\n- two"
    expect(texts(`# T\n\n${"word ".repeat(318)}\n\n${loose}`)[1]).toBe(loose)
  })

  // Seen failing: each was a part of the heading.
  it("have headings without ids, tags, images and the targets of links", () => {
    for (const [line, heading] of [
      ["# Limits {#limits}", "Limits"],
      ["# Limits {: #limits .wide }", "Limits"],
      ["# Limits [#limits]", "Limits"],
      ["# Limits {/* #limits */}", "Limits"],
      ['# <a name="limits"></a>Limits', "Limits"],
      ["# [![CI](https://e.com/b.svg)](https://e.com) Acme", "Acme"],
      ["# [1.2.0](https://e.com/compare/1.1.0...1.2.0) (2026-01-01)", "1.2.0 (2026-01-01)"],
      ["# The [`keys`](./keys.md) file", "The keys file"],
      ["# `{#id}` of `<details>` and Map<string> {a}", "{#id} of <details> and Map<string> {a}"],
      ["# C#", "C#"],
    ] as const) {
      expect(titleOf({ slug: "s", markdown: `${line}\n\nText.` }), line).toBe(heading)
    }
  })

  // Seen failing: such a page had no title, and its headings were text.
  it("know headings by the line under them", () => {
    const markdown =
      "Keys\n====\n\nText one.\n\nRotate `now` {#now}\n---\nText two.\n\n- item\n---\n\n| a |\n| - |\n---\n\nx\ny\n---\n\n    z\n---"
    expect(passagesOf({ slug: "s", markdown }).map(({ heading, text }) => [heading, text])).toEqual([
      ["Keys", "Text one."],
      ["Keys › Rotate now", "Text two.\n\n- item\n---\n\n| a |\n| - |\n---\n\nx\ny\n---\n\n    z\n\n---"],
    ])
  })

  // Seen failing: all lines but the first were text.
  it("leave out imports and exports of MDX of several lines", () => {
    const modules =
      "import {\n  Tabs,\n  TabItem,\n} from '@theme/Tabs'\nimport X from \"./x\"\n\n" +
      "export const meta = {\n  owner: 'platform (',\n\n  list: [1,\n    2],\n}\nexport const one = 1\n\n" +
      "export default function Page({ children }) {\n  return <div>{children}</div>\n}\n"
    expect(texts(`${modules}\n# T\n\nText.`)).toEqual(["Text."])
    expect(texts("import {\n  a\n\n# T\n\nText.")).toEqual(["Text."])
    const sentence = "import the file\n(first), then\n\nexport it"
    expect(texts(`# T\n\n${sentence}`)).toEqual([sentence])
    const code = "```js\nimport {\n  a\n} from 'a'\n```"
    expect(texts(`# T\n\n${code}`)).toEqual([code])
  })

  it("have the title of the page, and not a comment of an example", () => {
    const markdown = "```sh\n# a comment\n```\n\n    # another\n\n# The title\n\nText."
    expect(passagesOf({ slug: "s", markdown })[0]?.title).toBe("The title")
    expect(titleOf({ slug: "s", markdown })).toBe("The title")
  })

  // Seen failing: TOML was quoted as text.
  it("leave out front matter in TOML", () => {
    expect(texts('+++\ntitle = "T"\n+++\n\nText.')).toEqual(["Text."])
  })

  it("are the title or description of a page without text", () => {
    expect(texts("# Only a title")).toEqual(["Only a title"])
    expect(texts("---\ntitle: T\ndescription: What it is\n---\n")).toEqual(["What it is"])
    expect(texts("")).toEqual([])
  })
})
