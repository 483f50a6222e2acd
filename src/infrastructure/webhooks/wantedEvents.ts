import type { SqlClient, Statement } from "effect/sql"
import { defaultPatterns, topicsOf } from "../../domain/webhooks/eventRouting.ts"
import { texts } from "../database/arrays.ts"

/** Whether an endpoint has one of the topics as a pattern; reads its column `event_types`. */
export const wantsTopics = (sql: SqlClient.SqlClient, topics: Statement.Fragment) =>
  sql`coalesce(event_types, ${texts(defaultPatterns)}) && ${topics}`

/** `wantsTopics` for one event type. */
export const wantsType = (sql: SqlClient.SqlClient, type: string) => wantsTopics(sql, sql`${texts(topicsOf(type))}`)
