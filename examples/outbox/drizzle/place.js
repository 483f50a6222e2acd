import { sql } from "drizzle-orm"
import { drizzle } from "drizzle-orm/node-postgres"
import { bigint, pgTable, text } from "drizzle-orm/pg-core"

const orders = pgTable("orders", {
  id: bigint({ mode: "number" }).primaryKey().generatedAlwaysAsIdentity(),
  customer: text().notNull(),
})

const database = drizzle(process.env.DATABASE_URL)
await database.transaction(async (transaction) => {
  const [{ id }] = await transaction.insert(orders).values({ customer: "ann" }).returning({ id: orders.id })
  const order = JSON.stringify({ order: id })
  await transaction.execute(sql`SELECT gatehouse_outbox.publish('order.created', ${order}::jsonb)`)
  await transaction.execute(sql`SELECT gatehouse_outbox.create_job('send-email', ${order}::jsonb, '{"priority": 5}')`)
})
await database.$client.end()
