import { assert, it } from "@effect/vitest"
import { globSync, readFileSync } from "node:fs"

const root = new URL("../../", import.meta.url).pathname

/** What people read: pages of the console, commands, the texts of the OpenAPI document, and the documentation. */
const files = globSync(
  ["src/{console,cli}/**/*.{ts,tsx}", "src/http/api/**/*.ts", "src/domain/**/*.ts", "docs/*.md", "README.md"],
  { cwd: root },
)

/** Words that were replaced, in strings, in the text of pages and in prose, each with the word for it. */
const replaced: ReadonlyArray<readonly [old: RegExp, word: string]> = [
  [/(?:null|Absent|Empty|default): (?:it has )?no limit\b/, "unlimited"],
  [/\b(?:attempts|validations|jobs|deliveries|events) an? (?:second|minute|hour)\b(?= ?["`<])/i, "per second"],
  [/(?:title|label|submit)(?:=|: )"Status"|"STATUS", "ATTEMPT"/, "State"],
  [/title="(?:Change|Modify|Update) (?:an?|the|this) |"Change the documentation"/, "Edit"],
  [/\bretry (?:a|the|this|all) deliver/i, "Resend"],
  [/\bresend (?:a|the|this|all) job/i, "Retry"],
  [/\b(?:invalid|malformed|no valid|is not) JSON\b/i, "not valid JSON"],
  [/title: "For"|label="For"/, "Belongs to"],
  [/\bwhoever\b/i, "the one who, those who or anyone who"],
]

// Seen failing with 21 lines.
it("each thing has one word, and the words that were replaced are gone", () => {
  assert.isAbove(files.length, 200)
  const found = files.flatMap((path) =>
    readFileSync(root + path, "utf8")
      .split("\n")
      .flatMap((line, n) =>
        /^\s*(?:\*|\/\/|\/\*\*) /.test(line)
          ? []
          : replaced.filter(([old]) => old.test(line)).map(([, word]) => `${path}:${n + 1}: ${word}`),
      ),
  )
  assert.deepStrictEqual(found, [])
})
