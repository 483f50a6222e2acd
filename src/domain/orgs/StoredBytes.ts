/**
 * What a row costs beside its texts, in bytes: its other columns, its entries in indexes and in the queue, and the
 * versions that its changes leave.
 */
export const rowCost = {
  job: 1_000,
  schedule: 1_000,
  event: 500,
  delivery: 1_000,
  attempt: 300,
  /** Any other row, until it is measured. */
  other: 500,
} as const

/** Bytes of texts in UTF-8. Node counts them without making them: every creation asks. */
export const byteLength = (...texts: ReadonlyArray<string | null | undefined>) =>
  texts.reduce((sum, text) => sum + (text == null ? 0 : Buffer.byteLength(text)), 0)

/** The bytes of a new row of a measured table, as far as they are known before. */
export const newRowBytes = (row: unknown) => rowCost.other + byteLength(JSON.stringify(row))

/**
 * The longest result or error of a job, in bytes, that an org may store past its limit: any job can be finished
 * shortly.
 */
export const graceBytes = 1_000
