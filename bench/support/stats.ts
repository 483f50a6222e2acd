/** The p-th quantile (0 to 1) of the values; NaN without values. */
export const percentile = (values: ReadonlyArray<number>, p: number): number => {
  const sorted = values.filter((value) => !Number.isNaN(value)).toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))] ?? Number.NaN
}

/** The median of the values. */
export const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.filter((value) => !Number.isNaN(value)).toSorted((a, b) => a - b)
  const upper = sorted[sorted.length >> 1] ?? Number.NaN
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[(sorted.length >> 1) - 1] ?? Number.NaN)) / 2
}

/** The median of one figure over all rounds. */
export const medianOf = <A>(rounds: ReadonlyArray<A>, figure: (round: A) => number): number =>
  median(rounds.map(figure))
