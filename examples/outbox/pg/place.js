import { Client } from "pg"

const client = new Client({ connectionString: process.env.DATABASE_URL })
await client.connect()
try {
  await client.query("BEGIN")
  const { rows } = await client.query("INSERT INTO orders (customer) VALUES ($1) RETURNING id::int", ["ann"])
  const order = { order: rows[0].id }
  await client.query("SELECT gatehouse_outbox.publish('order.created', $1)", [order])
  await client.query("SELECT gatehouse_outbox.create_job('send-email', $1, $2)", [order, { priority: 5 }])
  await client.query("COMMIT")
} catch (error) {
  await client.query("ROLLBACK")
  throw error
} finally {
  await client.end()
}
