const whole = new Intl.NumberFormat("en")
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 })

/** "1,234,567". */
export const numberText = (value: number) => whole.format(value)

/** "1.2M"; numbers below 10,000 in full. */
export const shortNumber = (value: number) => (Math.abs(value) < 10_000 ? whole.format(value) : short.format(value))

/** "1.2 GiB". */
export const bytesText = (bytes: number) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"]
  const power = Math.min(units.length - 1, bytes < 1 ? 0 : Math.floor(Math.log(bytes) / Math.log(1024)))
  return `${Number((bytes / 1024 ** power).toFixed(power === 0 ? 0 : 1))} ${units[power]}`
}

/** The bytes of "1.5 GiB", "500 MB" or "1024"; undefined for another text. */
export const bytesOf = (text: string) => {
  const [, number, unit = "b"] = /^\s*([\d.]+)\s*([kmgt]?i?b?)\s*$/i.exec(text) ?? []
  const power = "kmgt".indexOf(unit[0]?.toLowerCase() ?? "") + 1
  return number === undefined ? undefined : Math.round(Number(number) * (/^.b/i.test(unit) ? 1000 : 1024) ** power)
}

/** "1 key", "2 keys". */
export const counted = (count: number, one: string, many = `${one}s`) =>
  `${whole.format(count)} ${count === 1 ? one : many}`
