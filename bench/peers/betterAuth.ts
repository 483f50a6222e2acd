import { apiKey } from "@better-auth/api-key"
import { betterAuth } from "better-auth"
import { getMigrations } from "better-auth/db/migration"
import Fastify from "fastify"
import { writeFileSync } from "node:fs"
import { Pool } from "pg"

/**
 * better-auth's API keys behind Fastify, as documented (`auth.api.verifyApiKey`), with the rate limit of keys off. With
 * TUNED, uses of a key are written after the response (`deferUpdates`). Creates COUNT keys and writes them to the file
 * KEYS.
 */
const { COUNT, DATABASE_URL, KEYS = "", PORT, TUNED } = process.env
const tuned = TUNED === "1"
const auth = betterAuth({
  baseURL: `http://127.0.0.1:${PORT}`,
  secret: "a-secret-of-the-benchmark-and-of-nothing-else",
  database: new Pool({ connectionString: DATABASE_URL!, max: 10 }),
  telemetry: { enabled: false },
  emailAndPassword: { enabled: true },
  plugins: [apiKey({ rateLimit: { enabled: false }, ...(tuned ? { deferUpdates: true } : {}) })],
  ...(tuned
    ? { advanced: { backgroundTasks: { handler: (task: Promise<unknown>) => void task.catch(() => {}) } } }
    : {}),
})
await (await getMigrations(auth.options)).runMigrations()
const { user } = await auth.api.signUpEmail({
  body: { name: "bench", email: "bench@example.com", password: "a-password-of-the-benchmark" },
})
const keys: Array<string> = []
for (let n = 0; n < Number(COUNT); n++) {
  keys.push((await auth.api.createApiKey({ body: { name: `key ${n}`, userId: user.id } })).key)
}
writeFileSync(KEYS, JSON.stringify(keys))

const app = Fastify()
app.get("/healthz", () => "ok")
app.post<{ Body: { key: string } }>("/api/v0/keys/validate", async (request, reply) => {
  const { key, valid } = await auth.api.verifyApiKey({ body: { key: request.body.key } })
  if (!valid || key === null) return reply.code(401).send({ error: "The key is not valid." })
  return { keyId: key.id, orgId: key.referenceId, projectId: "" }
})
process.stdin.resume().once("end", () => process.exit())
await app.listen({ port: Number(PORT), host: "127.0.0.1" })
