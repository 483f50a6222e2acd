import { describe, expect, it } from "vitest"
import { pageUrl, passagesOf, readable } from "#src/domain/docs/DocsPassages.ts"

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

  it("has absolute links", () => {
    const text =
      "[a](../access.md#modes) [b](/api/x) [c](https://e.com/x.md) [d](#here) ![e](./pic.png) [`f`](other.mdx)\n\n[g]: next/index.md"
    expect(readable(passage(text))).toBe(
      "[a](/access#modes) [b](/api/x) [c](https://e.com/x.md) [d](/guides/keys#here) ![e](/guides/pic.png) [`f`](/guides/other)\n\n[g]: /guides/next",
    )
    expect(readable(passage("[a](../access.md) [b](/x)"), "https://docs.example.com/v1")).toBe(
      "[a](https://docs.example.com/v1/access) [b](https://docs.example.com/v1/x)",
    )
    expect(pageUrl("index", "https://e.com/docs")).toBe("https://e.com/docs/")
    expect(pageUrl("a/index", "https://e.com/docs")).toBe("https://e.com/docs/a/index")
    expect(pageUrl("a b/ü", "https://e.com/")).toBe("https://e.com/a%20b/%C3%BC")
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

  it("are the title or description of a page without text", () => {
    expect(texts("# Only a title")).toEqual(["Only a title"])
    expect(texts("---\ntitle: T\ndescription: What it is\n---\n")).toEqual(["What it is"])
    expect(texts("")).toEqual([])
  })
})
