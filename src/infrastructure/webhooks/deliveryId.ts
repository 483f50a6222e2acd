import type { SqlClient } from "effect/sql"

const base32Digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

/**
 * SQL: the id of a delivery that is inserted together with its event: the time of the event's ULID, the last 13 of its 16
 * random characters, and the receiver's number in three digits. So the database can number deliveries that the process
 * cannot count. Ids of one process stay in the order of their events.
 *
 * @param event the event's id
 * @param number the receiver's number, below 32,768
 */
export const deliveryId = (sql: SqlClient.SqlClient, event: string, number: string) => {
  const digit = (shift: number) => `substr('${base32Digits}', ((${number}) >> ${shift} & 31) + 1, 1)`
  return sql.literal(`left(${event}, 10) || substr(${event}, 14) || ${digit(10)} || ${digit(5)} || ${digit(0)}`)
}
