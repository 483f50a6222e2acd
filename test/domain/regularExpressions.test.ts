import { assert, describe, it } from "vitest"
import { readdirSync, readFileSync } from "node:fs"
import { Schema } from "effect"
import { check } from "recheck"
import { parseAst } from "vite"
import { readable } from "#src/domain/docs/DocsPassages.ts"
import { makeAnswerReader } from "#src/domain/docs/verifyAnswer.ts"
import { Permission } from "#src/domain/keys/Permission.ts"
import { EventPatterns, EventType } from "#src/domain/webhooks/EventPatterns.ts"
import { definedIn, indexedWordsOf, namesIn, wordsOf } from "#src/domain/docs/docsWords.ts"
import { slowness } from "../support/slowness.ts"

/**
 * Promise (Bounded work): No regular expression takes more than 10 ms for 100 KB of its worst case, which is searched
 * for, and what a chat reads of pages and of a model's answer is read in linear time.
 */

const repository = new URL("../../", import.meta.url).pathname

/** The source of the service and of the packages; the console and the command line read the text of their own user. */
const files = ["src", "packages"].flatMap((folder) =>
  readdirSync(repository + folder, { recursive: true, encoding: "utf8" })
    .map((path) => `${folder}/${path}`)
    .filter((path) => path.endsWith(".ts") && !/node_modules|\/dist\/|\.d\.ts$|^src\/(console|cli)\//.test(path)),
)

interface Literal {
  readonly pattern: string
  readonly flags: string
}

/** The regular expressions that are written in a file. */
const literalsOf = (path: string) => {
  const found: Array<Literal> = []
  JSON.stringify(parseAst(readFileSync(repository + path, "utf8"), { lang: "ts" }), (_, node) => {
    if (node?.regex !== undefined) found.push(node.regex)
    return typeof node === "bigint" ? String(node) : node
  })
  return found
}

/** Whether a regular expression repeats something without a limit. Any other one is linear. */
const repeats = ({ pattern }: Literal) => /[*+]|\{\d+,\}/.test(pattern)

const length = 100_000

/** The CPU milliseconds of a call: the best of three, so that other work on the machine does not count. */
const millisOf = (call: () => unknown) =>
  Math.min(
    ...[1, 2, 3].map(() => {
      const before = process.cpuUsage()
      call()
      return process.cpuUsage(before).user / 1000
    }),
  )

describe("regular expressions", () => {
  // Seen failing: 16 took quadratic time, such as that of links for "![![![…", which a tenant's pages can contain.
  it("take less than 10 ms for 100 KB of their worst case", { timeout: 300_000 * slowness }, async () => {
    const literals = files.flatMap((path) => literalsOf(path).map((literal) => ({ path, ...literal })))
    assert.isAbove(literals.length, 200)
    const slow: Array<string> = []
    await Promise.all(
      literals.filter(repeats).map(async ({ flags, path, pattern }) => {
        const found = await check(pattern, flags, { timeout: 60_000 * slowness })
        if (found.status === "safe") return
        if (found.status === "unknown") return void slow.push(`${path}: /${pattern}/${flags} is not decided`)
        const { attack } = found
        const each = Math.ceil(length / attack.pumps.reduce((sum, { pump }) => sum + pump.length, 0))
        const text = attack.pumps.map(({ prefix, pump }) => prefix + pump.repeat(each)).join("") + attack.suffix
        const millis = millisOf(() => text.replace(new RegExp(pattern, flags), ""))
        if (millis > 10) slow.push(`${path}: /${pattern}/${flags} takes ${millis} ms`)
      }),
    )
    assert.deepStrictEqual(slow, [])
  })

  // A search for their worst case begins with the text in the source, which these do not have.
  it("are made from other text only where that is known, and is read below", () => {
    assert.deepStrictEqual(files.filter((path) => /\bRegExp\(/.test(readFileSync(repository + path, "utf8"))).sort(), [
      // JSX and HTML tags; below.
      "src/domain/docs/DocsPassages.ts",
      "src/domain/keys/ApiKey.ts",
      "src/domain/keys/Permission.ts",
      "src/domain/webhooks/EventPatterns.ts",
      "src/http/server/knownRoutes.ts",
      // The first 200 characters of a private key, without a repetition that has no limit.
      "src/infrastructure/net/foreignTls.ts",
      // The path of an operation, and a number.
      "src/sdk/outbox.ts",
    ])
  })

  /** Repeated, each was the worst case of an expression. */
  const worst = [
    ..."[({<`~*#-_ \t\n.:/\\'\"!",
    ...[
      "![",
      "[a](",
      "[a]:",
      "<!--",
      "{/*",
      "<A ",
      '<A a="',
      "<A a={",
      "{...",
      "~~~\n",
      "```\n",
      "`a",
      "a ",
      "e.g. ",
      "[[",
      '[[a "b"]] ',
      "[[nothing]]",
      "[\r",
      "(a",
      "a-b/",
    ],
  ]
  const uses: Record<string, (text: string) => unknown> = {
    readable: (text) => readable({ slug: "a", title: "a", heading: "a", text }),
    wordsOf,
    indexedWordsOf,
    namesIn,
    definedIn,
    isPermission: Schema.is(Permission),
    eventType: Schema.is(EventType),
    eventPatterns: (text) => Schema.is(EventPatterns)([text]),
    // In pieces, as a model says it. Seen failing: each piece read the whole sentence again, 69 s for 40 KB of "e.g. ".
    readAnswer: (text) => {
      const reader = makeAnswerReader()
      for (let at = 0; at < text.length; at += 4) reader.read(text.slice(at, at + 4))
      reader.end()
    },
  }
  /** The slowest takes 40 ms. What takes longer on a busy machine is compared with a sixteenth of it. */
  const maxMillis = 60
  /** Linear time is 16 times that of a sixteenth, quadratic time 256 times. */
  const maxGrowth = 64
  // Seen failing: "[[[…" took readable 9 seconds.
  it.each(Object.entries(uses))("%s reads 100 KB of its worst case in linear time", (_, use) => {
    const slow = worst.filter((one) => {
      const millisAt = (length: number) => {
        const text = `${one.repeat(Math.ceil(length / one.length)).slice(0, length)}x`
        return millisOf(() => use(text))
      }
      const isSlow = () => {
        const millis = millisAt(length)
        return millis > maxMillis && millis > maxGrowth * millisAt(length / 16)
      }
      // What else the machine does can stop one measurement, and hardly each of five.
      return Array.from({ length: 5 }).every(isSlow)
    })
    assert.deepStrictEqual(slow, [])
  })
})
