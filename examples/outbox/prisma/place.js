import { PrismaPg } from "@prisma/adapter-pg"
import { PrismaClient } from "./generated/client.ts"

const prisma = new PrismaClient({ adapter: new PrismaPg({ connectionString: process.env["DATABASE_URL"] }) })
await prisma.$transaction(async (transaction) => {
  const { id } = await transaction.order.create({ data: { customer: "ann" } })
  const order = JSON.stringify({ order: Number(id) })
  await transaction.$queryRaw`SELECT gatehouse_outbox.publish('order.created', ${order}::jsonb)`
  await transaction.$queryRaw`SELECT gatehouse_outbox.create_job('send-email', ${order}::jsonb, '{"priority": 5}')`
})
await prisma.$disconnect()
