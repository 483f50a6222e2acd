import { globSync, readFileSync } from "node:fs"
import { stripTypeScriptTypes } from "node:module"
import { join } from "node:path"
import { fileURLToPath } from "node:url"

/** The folder of this source. */
export const repository = fileURLToPath(new URL("../../../", import.meta.url))

/** A place of the source, and what stands there instead. */
export interface Mutant {
  readonly id: string
  readonly operator: string
  readonly file: string
  readonly at: number
  readonly from: string
  readonly to: string
}

/** What a mutant changes: each match of a pattern, in SQL as in TypeScript, and what comes in its place. */
const operators: Readonly<Record<string, readonly [RegExp, (match: RegExpMatchArray) => string]>> = {
  // A condition ends before the next one, a bracket that it has not opened, or a line.
  "drop a condition": [
    /\s+AND (?!pg_|NULL)(?:\$\{[^}`\n]*\}|\([^()`\n]*\)|(?! AND | OR |BETWEEN)[^()`\n;])+(?=[\n`);])/g,
    () => "",
  ],
  "drop a condition in a line": [
    / AND [\w.]+ (?:=|<>|<=|>=|<|>|IS NULL|IS NOT NULL)(?: ?\$\{[^}`\n]*\}| ?[\w.:']+)?(?= AND )/g,
    () => "",
  ],
  "drop a condition of code": [/ && [\w.!]+(?: (?:===|!==|<|>|<=|>=) [\w."]+)?(?=[ )\n])/g, () => ""],
  "drop a lock": [/ FOR (?:NO KEY UPDATE|UPDATE|SHARE)(?: OF \w+)?(?: SKIP LOCKED| NOWAIT)?/g, () => ""],
  "wait for a lock": [/ SKIP LOCKED/g, () => ""],
  "flip a comparison": [
    / (<=|>=|<|>|===|!==|<>) (?=[\w$'"(])/g,
    ([, sign]) => ` ${{ "<=": "<", ">=": ">", "<": "<=", ">": ">=", "===": "!==", "!==": "===", "<>": "=" }[sign!]!} `,
  ],
  "turn a condition around": [/ (&&|\|\|) /g, ([, sign]) => (sign === "&&" ? " || " : " && ")],
  "take the clock of the process": [/\bnow\(\)/g, () => "'${new Date().toISOString()}'::timestamptz"],
  "drop a statement": [/\n +yield\* (?!Effect\.log|Effect\.annotate)[\w.]+[(`][^\n]*[)`](?=\n)/g, () => ""],
  "swap two statements": [
    /\n( +)(yield\* [^\n]*[)`])\n\1(yield\* [^\n]*[)`])(?=\n)/g,
    ([, space, one, other]) => `\n${space}${other}\n${space}${one}`,
  ],
  "forget a default": [/coalesce\(([\w.]+), [\w']+\)/g, ([, name]) => name!],
  "the greatest is the least": [
    /\b(greatest|least|max|min)\(/g,
    ([, name]) => `${{ greatest: "least", least: "greatest", max: "min", min: "max" }[name!]!}(`,
  ],
}

/** Text that changes no behaviour, or that no promise is about: comments, imports, types, logs. */
const isApart = (text: string, at: number) => {
  const line = text.slice(text.lastIndexOf("\n", at - 1) + 1, text.indexOf("\n", at + 1))
  const own = text.slice(at).startsWith("\n") ? text.slice(at + 1, text.indexOf("\n", at + 1)) : line
  return (
    /^\s*(\/\/|\*|\/\*|--|import |export type|readonly )/.test(own) ||
    /Effect\.log|=> *void|Schema\.|: ReadonlyArray<|interface /.test(own)
  )
}

/** Files without decisions about the state of the service, or whose outcome only the outside world shows. */
const leftOut =
  /infrastructure\/(checks|telemetry|net|oidc|crypto|docs)\/|domain\/docs\/|migrations|embedded|domain\/.*Repository\.ts|Schemas\.ts/

/** All places where the source can be changed, in the order of their files. */
export const places = (): ReadonlyArray<Mutant> =>
  globSync("src/{infrastructure,domain}/**/*.ts", { cwd: repository })
    .filter((file) => !leftOut.test(file))
    .toSorted()
    .flatMap((file) => {
      const text = readFileSync(join(repository, file), "utf8")
      return Object.entries(operators).flatMap(([operator, [pattern, replaced]]) =>
        [...text.matchAll(pattern)].flatMap((match): ReadonlyArray<Mutant> => {
          const [from] = match
          const to = replaced(match)
          const [before, after] = [text.slice(0, match.index), text.slice(match.index + from.length)]
          // Only a statement with parameters has a place for a time.
          const isInSql = (before.match(/`/g)?.length ?? 0) % 2 === 1
          if (operator === "take the clock of the process" && !isInSql) return []
          if (isApart(text, match.index) || !isSound(before + to + after)) return []
          const line = `${before}\n`.split("\n").length - (from.startsWith("\n") ? 0 : 1)
          const what = from.trim().replaceAll(/\s+/g, " ")
          return [{ id: `${file}:${line}: ${operator}: ${what}`, operator, file, at: match.index, from, to }]
        }),
      )
    })

/** Whether a text is still TypeScript. */
const isSound = (text: string) => {
  try {
    stripTypeScriptTypes(text)
    return true
  } catch {
    return false
  }
}
