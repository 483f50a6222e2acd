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

/** Whether a selector selects a sample, which has the labels of its target: `targetLabels`. */
export const selects = ({ name, matchers }: Selector, sample: Sample): boolean =>
  sample.name === name &&
  matchers.every(({ label, op, value }) => {
    const has = sample.labels[label]
    if (has === undefined) return false
    return (op.endsWith("~") ? new RegExp(`^(?:${value})$`).test(has) : has === value) === !op.startsWith("!")
  })

/** An entry of `scrape_configs`, as far as the examples use it. */
export interface ScrapeConfig {
  readonly job_name: string
  readonly static_configs?: ReadonlyArray<{ readonly targets: ReadonlyArray<string> }>
  readonly relabel_configs?: ReadonlyArray<{
    readonly source_labels?: ReadonlyArray<string>
    readonly regex?: string
    readonly action?: string
    readonly target_label?: string
    readonly replacement?: string
  }>
}

/**
 * The labels that Prometheus adds to the samples of each target.
 *
 * @param discovered the addresses and labels that service discovery finds
 */
export const targetLabels = (
  { job_name, relabel_configs = [], static_configs }: ScrapeConfig,
  discovered: ReadonlyArray<Readonly<Record<string, string>>>,
): ReadonlyArray<Readonly<Record<string, string>>> => {
  const targets =
    static_configs?.flatMap(({ targets }) => targets.map((target) => ({ __address__: target }))) ?? discovered
  return targets.flatMap((target) => {
    const labels: Record<string, string> = { job: job_name, ...target }
    for (const {
      action = "replace",
      regex = "(.*)",
      replacement = "$1",
      source_labels = [],
      target_label,
    } of relabel_configs) {
      const found = new RegExp(`^(?:${regex})$`).exec(source_labels.map((name) => labels[name] ?? "").join(";"))
      if (action === "keep") {
        if (found === null) return []
      } else if (action === "replace" && target_label !== undefined) {
        if (found !== null) labels[target_label] = replacement.replace(/\$(\d)/g, (_, n) => found[Number(n)] ?? "")
      } else throw new Error(`No such action here: ${action}`)
    }
    const kept = Object.entries({ instance: labels["__address__"]!, ...labels }).filter(
      ([name]) => !name.startsWith("__"),
    )
    return [Object.fromEntries(kept)]
  })
}
