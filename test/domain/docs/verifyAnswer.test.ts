import { describe, expect } from "@effect/vitest"
import { Effect, Stream } from "effect"
import { makeAnswerReader, type Unverified, verifyAnswer } from "#src/domain/docs/verifyAnswer.ts"
import type { AnswerPart } from "#src/domain/docs/Chat.ts"
import { it } from "../../support/it.ts"
import { messageOf } from "../../support/uiMessages.ts"

/**
 * Promise (Documentation): A model's words reach the reader as they come, and the mark follows the sentence; only what
 * may be a citation waits.
 */

/** Promise (Documentation): What a model says gets a source only if the page has the quotation byte for byte. */

const page =
  "# Keys\n\nCreate a second key, put it into use, and delete the first one.\n\nA key lasts 90 days.\n\n```sh\nkeys rotate\n```"
const longLine = "a long line ".repeat(21)
/** Pages by slug. The words at the end of a large one are found after all others. */
const texts: Readonly<Record<string, string>> = {
  "guides/keys": page,
  long: longLine,
  large: `${" ".repeat(1_000_000)}The very last words.`,
  zh: "先创建第二个密钥，再删除第一个。密钥在90天后过期。",
}
const textOf = (slug: string) => {
  const text = texts[slug]
  return Effect.succeed(text === undefined ? undefined : { title: "Keys", text })
}
const fallback = Effect.succeed<ReadonlyArray<AnswerPart>>([
  { type: "text-start", id: "f" },
  { type: "text-delta", id: "f", delta: "The best passages." },
  { type: "text-end", id: "f" },
])

/** The text that the reader gets for these pieces of a model's answer. */
const verified = (pieces: ReadonlyArray<string>, unverified: Unverified = "mark", docsUrl?: string) => {
  const parts: ReadonlyArray<AnswerPart> = [
    { type: "start" },
    ...(pieces.length === 0 ? [] : [{ type: "text-start", id: "t" }]),
    ...pieces.map((delta) => ({ type: "text-delta", id: "t", delta })),
    ...(pieces.length === 0 ? [] : [{ type: "text-end", id: "t" }]),
    { type: "finish" },
  ]
  return Stream.fromIterable(parts).pipe(
    verifyAnswer({ unverified, docsUrl, textOf, fallback }),
    Stream.runCollect,
    Effect.flatMap((answer) => Effect.promise(() => messageOf(answer))),
  )
}

describe("an answer of a model", () => {
  it.effect(
    "has a source for each sentence whose quotation is in the page, however it is split into pieces",
    function* () {
      const said =
        'Make another key first. [[guides/keys "Create a second key"]] It lasts 90 days. [[guides/keys "A key lasts 90 days."]]'
      const expected = "Make another key first. [1](/guides/keys) It lasts 90 days. [2](/guides/keys)"
      for (const size of [1, 2, 7, 1_000]) {
        const pieces = said.match(new RegExp(`[^]{1,${size}}`, "g"))!
        const { text, parts } = yield* verified(pieces)
        expect(text, String(size)).toBe(expected)
        const sources = parts.filter(({ type }) => type === "source-document")
        expect(sources).toMatchObject([
          { sourceId: "1", title: "Keys", filename: "guides/keys" },
          { sourceId: "2", providerMetadata: { gatehouse: { quotation: "A key lasts 90 days." } } },
        ])
      }
    },
  )

  it.effect("has URLs as sources when the site is known", function* () {
    const { parts } = yield* verified(
      ['Make one. [[guides/keys "Create a second key"]]'],
      "mark",
      "https://docs.example.com/v1",
    )
    expect(parts.find(({ type }) => type === "source-url")).toMatchObject({
      url: "https://docs.example.com/v1/guides/keys",
    })
  })

  const wrong = {
    "no citation": "Keys live for ever.",
    "a quotation that the page does not have": 'Keys live for ever. [[guides/keys "Keys live for ever"]]',
    "a quotation in another case": 'Make a second key. [[guides/keys "create a second key"]]',
    "a page that does not exist": 'Make a second key. [[guides/other "Create a second key"]]',
    "a quotation that is too short": 'Make a second key. [[guides/keys "key"]]',
    "a quotation that is too long": `A line is long. [[long "${longLine}"]]`,
    "a number that the page does not have": 'A key lasts 30 days. [[guides/keys "A key lasts"]]',
    "code that the page does not have": 'Run `keys burn` for it. [[guides/keys "Create a second key"]]',
    "an example that the page does not have": '```sh\nkeys burn now please\n```\n[[guides/keys "Create a second key"]]',
  }
  for (const [what, said] of Object.entries(wrong)) {
    it.effect(`${what}: is marked or left out`, function* () {
      const marked = yield* verified([said])
      expect(marked.text).toContain(" *(not verified)*")
      expect(marked.text).not.toContain("[[")
      expect(marked.parts.filter(({ type }) => type.startsWith("source"))).toEqual([])
      const proved = ' Make one. [[guides/keys "Create a second key"]]'
      expect((yield* verified([said + (said.startsWith("```") ? "\n" : "") + proved], "omit")).text.trim()).toMatch(
        /^Make one\. \[1\]\(\/guides\/keys\)$/,
      )
      expect((yield* verified([said], "omit")).text).toBe("The documentation does not say.")
    })
  }

  it.effect("is looked up in a limited number of characters of pages", function* () {
    const { text } = yield* verified([`It has words. [[large "The very last words."]]\n`.repeat(150)])
    expect(text.slice(0, 26)).toBe("It has words. [1](/large)\n")
    expect(text.trimEnd().slice(-30)).toBe("It has words. *(not verified)*")
  })

  // Seen failing: with `mark`, too, a sentence was said at its end.
  it.effect(
    "goes on word by word where sentences are marked, and sentence by sentence where they are left out",
    function* () {
      const deltasOf = (unverified: Unverified) =>
        Stream.fromIterable(
          [
            "Keys live",
            " for ever.",
            " Make a second",
            ' key. [[guides/keys "Create a',
            ' second key"]] So',
            " be it",
          ].map((delta) => ({ type: "text-delta", id: "t", delta })),
        ).pipe(
          verifyAnswer({ unverified, docsUrl: undefined, textOf, fallback }),
          Stream.runCollect,
          Effect.map((parts) => parts.flatMap((part) => ("delta" in part ? [part["delta"]] : []))),
        )
      expect(yield* deltasOf("mark")).toEqual([
        "Keys live",
        " for ever.",
        " *(not verified)* Make a second",
        " key.",
        " [1](/guides/keys)",
        " So",
        " be it",
      ])
      expect(yield* deltasOf("omit")).toEqual(["Make a second key. [1](/guides/keys)", " "])
    },
  )

  it.effect("keeps questions, headings and introductions as they are", function* () {
    const said = "## What you do now\n\nDo you want to rotate it?\n\nThese are the steps for it:\n"
    expect((yield* verified([said], "omit")).text).toBe(said)
  })

  // Seen failing: one citation proved all sentences of a line, no sentence counted as one, and no number was compared.
  it.effect("is checked sentence by sentence in scripts without spaces, too", function* () {
    const said =
      '先创建第二个密钥。[[zh "先创建第二个密钥，"]]密钥永远不会过期！密钥在30天后过期。[[zh "密钥在90天后过期"]]' +
      '“密钥在90天后过期。”[[zh "密钥在90天后过期"]]怎么轮换密钥？请按以下步骤操作：'
    const expected =
      "先创建第二个密钥。 [1](/zh)密钥永远不会过期！ *(not verified)*密钥在30天后过期。 *(not verified)*" +
      "“密钥在90天后过期。” [2](/zh)怎么轮换密钥？请按以下步骤操作："
    for (const pieces of [[said], [...said]]) expect((yield* verified(pieces)).text).toBe(expected)
  })

  it.effect("says when the documentation has no answer", function* () {
    for (const mode of ["mark", "omit"] as const)
      expect((yield* verified(["[[noth", "ing]]"], mode)).text).toBe("The documentation does not say.")
  })

  it.effect("is replaced when it has no text", function* () {
    expect((yield* verified([])).text).toBe("The best passages.")
  })
})

describe("the units of an answer", () => {
  const read = (pieces: ReadonlyArray<string>) => {
    const reader = makeAnswerReader()
    return [...pieces.flatMap(reader.read), ...reader.end()]
  }
  const units = (text: string) => read([text]).flatMap((one) => (typeof one === "string" ? [] : [one.text]))
  const saidOf = (pieces: ReadonlyArray<string>) => read(pieces).filter((one) => typeof one === "string")

  it("are sentences and lines; abbreviations, numbers and code do not end one", () => {
    expect(units("Use e.g. version 1.5 of `a. b`. Then go.\n1. One item\n2. Two")).toEqual([
      "Use e.g. version 1.5 of `a. b`.",
      "Then go.",
      "1. One item",
      "2. Two",
    ])
  })

  it("together are the whole text", () => {
    const all = [
      "[[",
      "[[a",
      "`",
      "``` ",
      "```\nx",
      "  ~~",
      "...",
      "\n\n",
      "a [b] [[c",
      "a".repeat(10_000),
      "A. \n b\n\n  c",
    ]
    for (const text of all) {
      for (const pieces of [[text], [...text]]) expect(saidOf(pieces).join(""), text.slice(0, 10)).toBe(text)
    }
    expect(units("[[not a citation")).toEqual(["[[not a citation"])
    expect(saidOf(['A [[b c]] d. [[e "f"]]\nG']).join("")).toBe("A d.\nG")
  })

  // Seen failing: nothing was said before the end of a sentence.
  it("are said as they come; only what may be a citation waits", () => {
    const reader = makeAnswerReader()
    const said = (text: string) =>
      reader
        .read(text)
        .filter((one) => typeof one === "string")
        .join("")
    expect(["Make", " a k", "ey `in", " code", "`, and", " go. ", "[[a ", '"b"]]', " Then"].map(said)).toEqual([
      "Make",
      " a k",
      "ey `in",
      " code",
      "`, and",
      " go.",
      "",
      "",
      " Then",
    ])
    expect(["\n```sh\nrun", " it\n``", "`\nDone"].map(said)).toEqual(["\n```sh\nrun", " it\n``", "`\nDone"])
    expect(["\n[[a unfinished", " words", "[[again", "x".repeat(2_000)].map(said)).toEqual([
      "\n",
      "",
      "[[a unfinished words",
      `[[again${"x".repeat(1_994)}`.concat("xxxxxx"),
    ])
  })
})
