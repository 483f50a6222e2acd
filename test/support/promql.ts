import type { Sample } from "./prometheus.ts"

/** A selector of a PromQL expression. */
export interface Selector {
  readonly name: string
  readonly matchers: ReadonlyArray<{ readonly label: string; readonly op: string; readonly value: string }>
}

/** The selectors of an expression, and the labels that it groups by. */
export const selectorsOf = (expr: string): { selectors: ReadonlyArray<Selector>; groupedBy: ReadonlyArray<string> } => {
  const grouping = /\b(?:by|without)\s*\(([^)]*)\)/g
  const groupedBy = [...expr.matchAll(grouping)].flatMap(([, labels]) => labels!.split(",").map((each) => each.trim()))
  const selector = /\b([a-zA-Z_:][\w:]*)\b(?:\{([^}]*(?:"[^"]*"[^}]*)*)\}|(?!\s*[\w({]))/g
  const selectors = [
    ...expr
      .replace(grouping, " ")
      .replace(/\[(\$\w+|\d+[smhd])\]/g, "")
      .matchAll(selector),
  ].map(([, name, matchers = ""]) => ({
    name: name!,
    matchers: [...matchers.matchAll(/(\w+)(=~|!~|!=|=)"([^"]*)"/g)].map(([, label, op, value]) => ({
      label: label!,
      op: op!,
      value: value!,
    })),
  }))
  return { selectors, groupedBy }
}

/** Whether a selector selects a sample. The scraper adds `job` and `instance`. */
export const selects = ({ name, matchers }: Selector, sample: Sample): boolean =>
  sample.name === name &&
  matchers.every(({ label, op, value }) => {
    if (label === "job" || label === "instance") return true
    const has = sample.labels[label]
    if (has === undefined) return false
    return (op.endsWith("~") ? new RegExp(`^(?:${value})$`).test(has) : has === value) === !op.startsWith("!")
  })
