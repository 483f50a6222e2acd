import { describe, expect, it } from "vitest"
import { splitFrontMatter, textsOf } from "#src/domain/docs/frontMatter.ts"

const title = (matter: string) => textsOf(matter)("title")

describe("front matter", () => {
  it("is YAML", () => {
    for (const [matter, expected] of [
      ['title: "A \\u00e9 \\"b\\"" # comment', 'A é "b"'],
      ["title: 'it''s'", "it's"],
      ["title: >-\n  two\n  lines", "two lines"],
      ["title: two\n  lines", "two lines"],
      ['"title": A', "A"],
      ["{ title: A, slug: b }", "A"],
      ["label: &a A\ntitle: *a", "A"],
      ["seo:\n  title: no\ntitle: A", "A"],
      ["seo:\n  title: no", ""],
      ["title: C# and F#", "C# and F#"],
      ["title: 1.10", "1.10"],
      ["title: null", ""],
      ["title: [A]", ""],
      ["title:", ""],
    ] as const) {
      expect(title(matter), matter).toBe(expected)
    }
  })

  it("may be wrong YAML: each field is then read by itself", () => {
    const wrong = "title: Deploy: how to\ndescription: >\n  two\n  lines\ntags: [a\n"
    expect(title(wrong)).toBe("Deploy: how to")
    expect(textsOf(wrong)("description")).toBe("two lines")
    expect(title("tags: [a\ntitle: 'A'\n")).toBe("A")
    expect(title("tags: [a\ntitle:\n")).toBe("")
  })

  it("may end with three dots", () => {
    expect(splitFrontMatter("---\ntitle: Keys\n...\n# Text")).toEqual({ matter: "title: Keys", body: "# Text" })
  })

  it("may be empty, and be in TOML, which is left out", () => {
    for (const text of ["---\n---\nA", "---\r\n\r\n---  \r\nA", "--- \ntitle: a\n---\nA", '+++\ntitle = "a"\n+++\nA'])
      expect(splitFrontMatter(text).body, text).toBe("A")
  })

  // Seen failing without a limit: merge keys and aliases took 6 s for 64 KiB.
  it("is read quickly when it is made to be slow, or long", () => {
    const times = (count: number, line: (n: number) => string) => Array.from({ length: count }, (_, n) => line(n))
    const keys = `&a {${times(2_000, (n) => `k${n}: 1`).join(", ")}}`
    const bomb = times(500, (n) => `b${n + 1}: &b${n + 1} [${`*b${n},`.repeat(40)}]`)
    const hostile = [
      `a: ${keys}\n${times(2_000, (n) => `c${n}:\n  <<: *a`).join("\n")}`,
      `b0: &b0 [x]\n${bomb.join("\n")}`,
      "[".repeat(65_536),
      "{a: ".repeat(16_384),
      times(360, (n) => `${" ".repeat(n)}a:`).join("\n"),
    ]
    const before = process.threadCpuUsage()
    for (const text of hostile) expect(title(`${text}\ntitle: A`)).toBe("A")
    const { user, system } = process.threadCpuUsage(before)
    expect((user + system) / hostile.length, "microseconds of CPU time").toBeLessThan(100_000)
  })
})
