/** `1.25 TB`: bytes for people. */
export const inBytes = (bytes: number): string => {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"]
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3))
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${units[power]}`
}
