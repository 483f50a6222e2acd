/** One line of a metric: `name{label="value"} 1`. */
export interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

/** A metric with its help, type and samples. */
export interface Family {
  readonly name: string
  readonly help: string
  readonly type: string
  readonly samples: Array<Sample>
}

const label = /([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"/
const sample = new RegExp(
  `^([a-zA-Z_:][\\w:]*)(?:\\{(${label.source}(?:,${label.source})*)\\})? (-?\\d[\\d.e+-]*|[+-]Inf|NaN)$`,
)

const parseSample = (line: string): Sample => {
  const [whole, name, labels = ""] = sample.exec(line) ?? []
  if (whole === undefined || name === undefined) throw new Error(`No sample: ${line}`)
  const pairs = [...labels.matchAll(new RegExp(label, "g"))].map(([, key, value]) => [key!, value!] as const)
  if (new Set(pairs.map(([key]) => key)).size < pairs.length) throw new Error(`A label twice: ${line}`)
  return {
    name,
    labels: Object.fromEntries(pairs),
    value: Number(line.slice(line.lastIndexOf(" ") + 1).replace("Inf", "Infinity")),
  }
}

/**
 * Reads Prometheus' text format in its strict form: each metric has its HELP, its TYPE and all its samples together, in
 * this order, and the text ends with a line feed.
 */
export const parse = (text: string): ReadonlyArray<Family> => {
  if (!text.endsWith("\n")) throw new Error("The text does not end with a line feed")
  const families: Array<Family> = []
  const lines = text.slice(0, -1).split("\n")
  for (let n = 0; n < lines.length; n++) {
    const [, name, help] = /^# HELP (\S+) (\S.*)$/.exec(lines[n]!) ?? []
    if (name === undefined || help === undefined) throw new Error(`No HELP: ${lines[n]}`)
    const [, typed, type] = /^# TYPE (\S+) (counter|gauge|histogram)$/.exec(lines[++n] ?? "") ?? []
    if (typed !== name || type === undefined) throw new Error(`No TYPE of ${name}: ${lines[n]}`)
    const samples: Array<Sample> = []
    while (n + 1 < lines.length && !lines[n + 1]!.startsWith("#")) samples.push(parseSample(lines[++n]!))
    families.push({ name, help, type, samples })
  }
  return families
}

const keyOf = ({ name, labels }: Sample) => JSON.stringify([name, Object.entries(labels).sort()])

const histogramFaults = ({ name, samples }: Family) => {
  const faults: Array<string> = []
  const withoutBound = (labels: Sample["labels"]) => Object.entries(labels).filter(([key]) => key !== "le")
  const series = Map.groupBy(samples, ({ labels }) => JSON.stringify(withoutBound(labels)))
  for (const [labels, all] of series) {
    const buckets = all.filter((sample) => sample.name === `${name}_bucket`)
    const bounds = buckets.map((bucket) => Number(bucket.labels["le"]?.replace("+Inf", "Infinity")))
    const counts = buckets.map(({ value }) => value)
    const count = all.find((sample) => sample.name === `${name}_count`)?.value
    const ascends = (values: ReadonlyArray<number>) => values.every((value, n) => n === 0 || value >= values[n - 1]!)
    if (!ascends(bounds) || !ascends(counts)) faults.push(`the buckets of ${name} ${labels} do not ascend`)
    if (bounds.at(-1) !== Infinity || counts.at(-1) !== count) faults.push(`${name} ${labels} has no whole +Inf bucket`)
    if (all.length !== buckets.length + 2 || !all.some((sample) => sample.name === `${name}_sum`))
      faults.push(`${name} ${labels} has not one sum and one count`)
  }
  return faults
}

/** Violations of Prometheus' conventions of names, labels and units (prometheus.io/docs/practices/naming). */
export const conventionFaults = (families: ReadonlyArray<Family>): ReadonlyArray<string> => {
  const faults: Array<string> = []
  const names = families.map(({ name }) => name)
  if (new Set(names).size < names.length) faults.push("a metric is there twice")
  for (const family of families) {
    const { name, type, samples } = family
    const fault = (what: string) => faults.push(`${name} ${what}`)
    if (!/^(gatehouse|http|process|nodejs)(_[a-z0-9]+)+$/.test(name)) fault("is no name of ours")
    if ((type === "counter") !== name.endsWith("_total")) fault(`is a ${type}`)
    if (/_(bucket|count|sum|info|gauge|counter|histogram)$/.test(name)) fault("ends like something else")
    if (/_(milliseconds|ms|minutes|hours|kilobytes|megabytes|percent)(_|$)/.test(name)) fault("is in no base unit")
    if (/_(seconds|bytes)_(?!total$)/.test(name)) fault("has its unit in its middle")
    if (type === "histogram" && !/_(seconds|bytes)$/.test(name)) fault("has no unit")
    if (samples.length === 0) fault("has no sample")
    if (new Set(samples.map(keyOf)).size < samples.length) fault("has a series twice")
    for (const { name: own, labels, value } of samples) {
      const suffix = type === "histogram" ? own.slice(name.length) : ""
      if (own !== name + suffix || (type === "histogram" && !/^_(bucket|count|sum)$/.test(suffix))) fault(`has ${own}`)
      if (!Number.isFinite(value) || (type !== "gauge" && value < 0)) fault(`has the value ${value}`)
      const keys = Object.keys(labels)
      if (!keys.every((key) => /^[a-z][a-z_]*$/.test(key))) fault(`has the labels ${keys.join()}`)
      if (keys.includes("le") !== (suffix === "_bucket") || keys.includes("quantile"))
        fault("has a label of another type")
    }
    if (type === "histogram") faults.push(...histogramFaults(family))
  }
  return faults
}
