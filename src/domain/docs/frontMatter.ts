import { Yaml } from "effect/encoding"

const yamlMatter = /^---[ \t]*\r?\n(?:([\s\S]*?)\r?\n)?(?:---|\.\.\.)[ \t]*(?:\r?\n|$)/
/** Front matter in TOML is not read. */
const tomlMatter = /^\+\+\+[ \t]*\r?\n(?:[\s\S]*?\r?\n)?\+\+\+[ \t]*(?:\r?\n|$)/

/** Splits a markdown file into its front matter in YAML and its body. */
export const splitFrontMatter = (markdown: string): { readonly matter: string; readonly body: string } => {
  const text = markdown.startsWith("\uFEFF") ? markdown.slice(1) : markdown
  const [whole, matter = ""] = yamlMatter.exec(text) ?? tomlMatter.exec(text) ?? [""]
  return { matter, body: text.slice(whole.length) }
}

/** The longest YAML that is parsed, in characters: at most 3 ms of CPU time. */
const maxYamlLength = 4_096

/** The value of YAML; `undefined` for what is none, is too long, or has merge keys, whose cost is not linear. */
const parse = (yaml: string): unknown => {
  if (yaml.length > maxYamlLength || yaml.includes("<<")) return undefined
  try {
    return Yaml.parse(yaml)
  } catch {
    return undefined
  }
}

const isMapping = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The lines of one field: its own, and the indented ones after it. */
const linesOf = (matter: string, name: string) => {
  const lines = matter.split(/\r?\n/)
  const start = lines.findIndex((line) => line.startsWith(`${name}:`))
  if (start < 0) return []
  const end = lines.findIndex((line, at) => at > start && /^[^\s]/.test(line))
  return lines.slice(start, end < 0 ? undefined : end)
}

/** The text of a field's first line as it is written. */
const writtenText = ([line = ""]: ReadonlyArray<string>) => line.slice(line.indexOf(":") + 1).trim()

/**
 * Reads fields of front matter. In what is no YAML as a whole, each field is read by itself: people write `title:
 * Deploy: how to`.
 */
export const fieldsOf = (matter: string): ((name: string) => unknown) => {
  const all = parse(matter)
  if (isMapping(all)) return (name) => all[name]
  return (name) => {
    const lines = linesOf(matter, name)
    const one = parse(lines.join("\n"))
    return isMapping(one) ? one[name] : writtenText(lines) || undefined
  }
}

/** Reads fields of front matter as one line of text each; "" without one. A number is as it is written. */
export const textsOf = (matter: string): ((name: string) => string) => {
  const fields = fieldsOf(matter)
  return (name) => {
    const value = fields(name)
    const text = typeof value === "number" ? writtenText(linesOf(matter, name)) : value
    return typeof text === "string" ? text.replaceAll(/\s+/g, " ").trim() : ""
  }
}
