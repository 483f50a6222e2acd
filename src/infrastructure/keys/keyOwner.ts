import type { SqlClient } from "effect/sql"

/**
 * SQL: whether the org of a key exists, and its project if it has one. The keys of deleted ones have rows until a sweep has
 * removed them; every statement that finds keys has this condition.
 */
export const hasOwner = (sql: SqlClient.SqlClient, keys = "api_keys") =>
  sql.literal(`EXISTS (SELECT FROM orgs WHERE id = ${keys}.org_id)
    AND (${keys}.project_id IS NULL OR EXISTS (SELECT FROM projects WHERE id = ${keys}.project_id))`)
