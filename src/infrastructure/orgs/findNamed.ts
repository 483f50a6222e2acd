import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Named } from "../../domain/orgs/Named.ts"
import { cutRows, type Found, type Page } from "../../domain/Page.ts"
import type { OrgScope } from "../../domain/Principal.ts"
import { afterCursor, hasText, inScope, lookedAt } from "../database/fragments.ts"

/** Where names are: the table, the SQL of what a reader sees as the name, and the columns that may have the text. */
const places: ReadonlyArray<{
  readonly kind: Named["kind"]
  readonly table: string
  readonly name: string
  readonly texts: ReadonlyArray<string>
}> = [
  { kind: "project", table: "projects", name: "name", texts: ["name", "subdomain"] },
  { kind: "key", table: "api_keys", name: "name", texts: ["name", "external_id", "prefix"] },
  {
    kind: "endpoint",
    table: "webhook_endpoints",
    name: "coalesce(description, url)",
    texts: ["description", "url", "external_id"],
  },
  { kind: "schedule", table: "job_schedules", name: "workflow", texts: ["workflow"] },
  { kind: "change", table: "audit_log", name: "action", texts: [] },
]

/**
 * What has a text in its name, newest first, in all orgs of the scope. Reads at most `maxFilteredRows` rows of each
 * table: a page ends where one of them was cut, and can have fewer items than its limit while others follow.
 */
export const findNamed = Effect.fnUntraced(function* (
  databases: ReadonlyArray<SqlClient.SqlClient>,
  scope: OrgScope,
  { text, ...page }: Page & { readonly text: string },
) {
  const found = yield* Effect.forEach(databases, (sql) =>
    Effect.forEach(places, (place) => findIn(sql, scope, text, page, place)),
  )
  const parts = found.flat()
  const ends = parts.flatMap(({ end }) => (end === undefined ? [] : [end]))
  const from = ends.reduce((one, other) => (one > other ? one : other), "")
  // While an org moves, two databases have its rows.
  const byId = new Map(parts.flatMap((part) => part.items.map((item) => [item.id, item] as const)))
  const items = [...byId.values()].filter(({ id }) => id >= from).toSorted((a, b) => (a.id < b.id ? 1 : -1))
  return {
    items: items.slice(0, page.limit),
    hasMore: items.length > page.limit || parts.some(({ hasMore }) => hasMore),
    ...(from === "" ? {} : { seenTo: from }),
  } satisfies Found<Named>
})

/** The newest rows of a table that fit; `end`: the last id that was looked at, when others may follow. */
const findIn = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  scope: OrgScope,
  text: string,
  page: Page,
  { kind, name, table, texts }: (typeof places)[number],
) {
  const all = sql.and([inScope(sql, scope), afterCursor(sql, page, "newest")])
  const { seenTo, within } = yield* lookedAt(sql, sql`${sql(table)} WHERE ${all}`, sql`id`, "newest")
  const fits = kind === "change" ? sql`request_id = ${text}` : hasText(sql, text, ...texts)
  const rows = yield* sql<Named>`
    SELECT ${kind}::text AS kind, t.id, t.name, t.org_id AS "orgId", orgs.name AS "orgName"
    FROM (
      SELECT id, org_id, ${sql.literal(name)} AS name FROM ${sql(table)} WHERE ${all} AND ${within} AND ${fits}
    ) AS t
    JOIN orgs ON orgs.id = t.org_id
    ORDER BY t.id DESC LIMIT ${page.limit + 1}`
  const { hasMore, items } = cutRows(rows, page.limit)
  return { items, hasMore, end: hasMore ? items.at(-1)!.id : seenTo }
})
