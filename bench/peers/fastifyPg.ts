import Fastify from "fastify"
import { createHash, hash, timingSafeEqual } from "node:crypto"
import { readFileSync } from "node:fs"
import { Pool } from "pg"

/**
 * Validation on Fastify and pg. As both projects document: a JSON schema for the body, a pool of ten, `pool.query(text,
 * values)`. TUNED adds a response schema, a named (prepared) statement and one-shot hashing. KEYS is a file with the
 * known keys.
 */
const { ADMIN_TOKEN = "", DATABASE_URL, KEYS = "", PORT, TUNED } = process.env
const tuned = TUNED === "1"
const pool = new Pool({ connectionString: DATABASE_URL!, max: 10 })
const sha256 = tuned
  ? (text: string) => hash("sha256", text, "buffer")
  : (text: string) => createHash("sha256").update(text).digest()

await pool.query(`CREATE TABLE api_keys (id text PRIMARY KEY, org_id text NOT NULL, project_id text, hash bytea NOT NULL,
  expires_at timestamptz)`)
await pool.query("CREATE UNIQUE INDEX ON api_keys (hash)")
const keys = JSON.parse(readFileSync(KEYS, "utf8")) as ReadonlyArray<string>
await pool.query(
  "INSERT INTO api_keys SELECT 'key' || n, 'org', 'project', hash FROM unnest($1::bytea[]) WITH ORDINALITY AS k (hash, n)",
  [keys.map(sha256)],
)
await pool.query("VACUUM ANALYZE api_keys")

const select = "SELECT id, org_id, project_id, expires_at FROM api_keys WHERE hash = $1"
const find = (hash: Buffer) =>
  tuned ? pool.query({ name: "find", text: select, values: [hash] }) : pool.query(select, [hash])

const expected = Buffer.from(`Bearer ${ADMIN_TOKEN}`)
const isAdministrator = (authorization = "") => {
  const sent = Buffer.from(authorization)
  return sent.length === expected.length && timingSafeEqual(sent, expected)
}

const text = { type: "string" }
const app = Fastify()
app.get("/healthz", () => "ok")
app.post<{ Body: { key: string } }>(
  "/api/v0/keys/validate",
  {
    schema: {
      body: { type: "object", required: ["key"], properties: { key: { type: "string", minLength: 1 } } },
      ...(tuned
        ? { response: { 200: { type: "object", properties: { keyId: text, orgId: text, projectId: text } } } }
        : {}),
    },
  },
  async (request, reply) => {
    if (!isAdministrator(request.headers.authorization)) return reply.code(401).send({ error: "Who is asking?" })
    const [row] = (await find(sha256(request.body.key))).rows
    if (row === undefined || (row.expires_at !== null && row.expires_at <= new Date())) {
      return reply.code(401).send({ error: "The key is not valid." })
    }
    return { keyId: row.id, orgId: row.org_id, projectId: row.project_id ?? "" }
  },
)
process.stdin.resume().once("end", () => process.exit())
await app.listen({ port: Number(PORT), host: "127.0.0.1" })
