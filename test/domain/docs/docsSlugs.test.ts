import { describe, expect, it } from "vitest"
import { slugsOf, withoutNumbers } from "#src/domain/docs/docsSlugs.ts"

const slugs = (...files: ReadonlyArray<string | readonly [path: string, slug: string]>) =>
  slugsOf(files.map((file) => (typeof file === "string" ? { path: file, slug: "" } : { path: file[0], slug: file[1] })))

describe("the slugs of the pages of an archive", () => {
  it("are their paths without the extension and the index of a folder", () => {
    expect(slugs("index.md", "guide/index.mdx", "guide/keys.markdown")).toEqual(["index", "guide", "guide/keys"])
  })

  // Seen failing: `guide/README`, which no site has.
  it("take a README for the index of a folder without one", () => {
    expect(slugs("README.md", "guide/readme.md", "2-setup/README.mdx", "setup/a.md")).toEqual([
      "index",
      "guide",
      "setup",
      "setup/a",
    ])
    expect(slugs("README.md", "index.md", "guide/README.md", "guide/index.md")).toEqual([
      "README",
      "index",
      "guide/README",
      "guide",
    ])
    expect(slugs("guide/README.md", "guide.md")).toEqual(["guide/README", "guide"])
  })

  it("leave no page out: a slug that two pages would have is that of the file with this path", () => {
    expect(slugs("guide/index.md", "guide.md")).toEqual(["guide/index", "guide"])
    expect(slugs("guide.md", "guide.mdx", "guide-2.md")).toEqual(["guide", "guide-2", "guide-2-2"])
    expect(slugs("guide/index.md", "guide/Index.md")).toEqual(["guide/index", "guide/Index"])
  })

  it("omit the numbers that only order files, unless two pages would have one slug", () => {
    expect(slugs("01-intro.md", "02_setup/3. first run.md", "02_setup/index.md", "10-a/01-index.md")).toEqual([
      "intro",
      "setup/first run",
      "setup",
      "a",
    ])
    expect(slugs("01-intro.md", "02-intro.md")).toEqual(["01-intro", "02-intro"])
    expect(slugs("01-intro.md", "intro.md")).toEqual(["01-intro", "intro"])
    for (const name of ["2026-01-31-news", "01-02-2026", "7.7.4", "404", "2fa", "v1-2", "1-", "-1-a", "a/1.2-b"])
      expect(withoutNumbers(name), name).toBe(name)
  })

  it("are those of the front matter, from the folder of the file or from the root", () => {
    expect(
      slugs(
        ["a/b.md", "c"],
        ["a/d.md", "/e/f/"],
        ["a/g.md", "../h"],
        ["a/i.md", "./j"],
        ["a/k.md", "/"],
        ["a/l.md", "."],
      ),
    ).toEqual(["a/c", "e/f", "h", "a/j", "index", "a"])
    expect(slugs(["a.md", "/same"], ["b.md", "/same"]), "two equal ones").toEqual(["a", "b"])
    expect(slugs(["a.md", "/b"], "b.md"), "the path of another page").toEqual(["a", "b"])
  })

  it("ignore a slug of front matter that is no path", () => {
    const bad = ["../../x", "https://example.com/x", "a?b", "a#b", "a\\b", "a\0b", "\ud800", "/c:/x", "x".repeat(513)]
    for (const slug of bad) expect(slugs(["a/b.md", slug]), JSON.stringify(slug)).toEqual(["a/b"])
  })
})
