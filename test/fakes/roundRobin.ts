import type { RoundRobinBatch } from "#src/domain/roundRobin.ts"

/** The rows of one batch of `roundRobin`. `rows` are in the order of their due times. */
export const batchOf = <Row extends { readonly orgId: string }>(
  rows: ReadonlyArray<Row>,
  isDue: (row: Row) => boolean,
  { after, limit }: Pick<RoundRobinBatch, "after" | "limit">,
): { readonly picked: ReadonlyArray<Row>; readonly next: string | null } => {
  if (after === null) {
    const picked = rows.filter(isDue).slice(0, limit)
    return { picked, next: picked.length === limit ? "" : null }
  }
  const seen = [...new Set(rows.map(({ orgId }) => orgId))]
    .filter((orgId) => orgId > after)
    .sort()
    .slice(0, limit)
  const due = seen.map((orgId) => rows.filter((row) => row.orgId === orgId && isDue(row))).filter((of) => of.length > 0)
  const share = Math.max(1, Math.floor(limit / due.length))
  return { picked: due.flatMap((of) => of.slice(0, share)), next: seen.length === limit ? seen.at(-1)! : null }
}
