import { assert, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { readSettings } from "#src/console/frame/settings.ts"
import { words } from "#src/console/frame/words.ts"

/** Promise (Portal) */

const page = readFileSync("docs/portal.md", "utf8")
const sources = readdirSync("src/console", { recursive: true, encoding: "utf8" })
  .filter((name) => /\.tsx?$/.test(name) && !name.startsWith("frame/"))
  .map((name) => readFileSync(join("src/console", name), "utf8"))
  .join("\n")

it("docs/portal.md lists the words that a page may replace, and the console has each of them", () => {
  const listed = [...page.matchAll(/^- (.+)$/gm)].map(([, word]) => word)
  assert.deepStrictEqual(listed.slice(-words.length), [...words])
  assert.strictEqual(new Set(words).size, words.length)
  const found = new Set(sources.split(/[<>"{}\n]|(?:^|[ ,({])(?=\w+:)|(?<=\w):/).map((part) => part.trim()))
  assert.deepStrictEqual(
    words.filter((word) => !found.has(word) && !sources.includes(`"${word}"`)),
    [],
  )
})

it("docs/portal.md names the attributes, properties and events that the element has, and no others", async () => {
  const element = readFileSync("packages/client/src/portal.ts", "utf8")
  const [shown] = /<gatehouse-portal [^>]+>/.exec(page)!
  // By its address: this project has no types of a browser.
  const { href } = new URL("../../packages/client/src/portal.ts", import.meta.url)
  type Module = { readonly GatehousePortal: { readonly observedAttributes: ReadonlyArray<string> } }
  const { GatehousePortal } = (await import(href)) as Module
  const attributes = [...GatehousePortal.observedAttributes, "title"]
  for (const [, name] of shown.matchAll(/ (\w+)=/g)) assert.include(attributes, name)
  const named = (title: string) => {
    const [, rows] = new RegExp(`\\| ${title} \\|.*\n.*\n((?:\\|.*\n)+)`).exec(page)!
    return [...rows!.matchAll(/^\| `([\w-]+)`/gm)].map(([, name]) => name!)
  }
  assert.deepStrictEqual(named("attribute").sort(), attributes.sort())
  for (const name of named("property")) assert.include(element, `  set ${name}(`)
  const events = [...element.matchAll(/new CustomEvent\("([\w-]+)"/g)].map(([, name]) => name)
  assert.deepStrictEqual(named("event").sort(), events.sort())
})

it("a setting of the page around the frame is checked, and a wrong one is named and left out", () => {
  const right = {
    theme: "dark" as const,
    color: "#0b57a4",
    logo: "https://example.com/logo.svg",
    name: "Acme & Söhne",
    lang: "pt-BR",
    page: "keys",
    texts: { Endpoints: "Endpunkte" },
  }
  assert.deepStrictEqual(readSettings(right), { settings: right, faults: [] })
  assert.deepStrictEqual(readSettings({ theme: null, color: undefined }), { settings: {}, faults: [] })
  const wrong: ReadonlyArray<readonly [string, ReadonlyArray<unknown>]> = [
    ["theme", ["neon", 1, {}]],
    ["color", ["red", "#fff", "#ffffff", "#0b57a4;", "url(x)", "var(--x)", 255]],
    [
      "logo",
      [
        "http://example.com/logo.svg",
        "javascript:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        "blob:https://example.com/x",
        "//example.com/x",
        `https://example.com/${"x".repeat(2_100)}`,
        `data:image/png;base64,${"x".repeat(65_536)}`,
      ],
    ],
    ["name", ["", " ", "x".repeat(61), "two\nlines"]],
    ["lang", ["", "german language", "x", "de_DE", '"><script>']],
    ["page", ["jobs", "../console", "constructor"]],
    ["texts", [[], "x", { Nothing: "x" }, { Endpoints: "" }, { Endpoints: "x".repeat(201) }, { constructor: "x" }]],
  ]
  for (const [name, values] of wrong) {
    for (const value of values) {
      const { faults, settings } = readSettings({ [name]: value })
      assert.strictEqual(faults.length, 1, `${name} ${JSON.stringify(value)}`)
      assert.match(faults[0]!, new RegExp(`^${name}.+\\.$`))
      assert.deepStrictEqual(settings, name === "texts" ? { texts: {} } : {})
    }
  }
  assert.deepStrictEqual(readSettings({ toString: 1 }).faults, ['The portal has no setting "toString".'])
  const many = Object.fromEntries(Array.from({ length: 600 }, (_, n) => [`word ${n}`, "x"]))
  assert.deepStrictEqual(readSettings({ texts: many }).faults, [
    "texts must be an object of at most 500 words and their texts.",
  ])
})
