import Fastify, { type FastifyReply, type FastifyRequest } from "fastify"
import { createRemoteJWKSet, jwtVerify } from "jose"
import { hash, randomBytes, timingSafeEqual } from "node:crypto"
import { crc32 } from "node:zlib"
import { Pool } from "pg"
import { createTables } from "./tables.ts"
import { register, type Claims } from "./register.ts"
import { ulid } from "./ulid.ts"

/**
 * Four of the service's operations by hand, on Fastify and pg with named statements: the same checks of requests and
 * credentials, and the same rows in as many transactions. TENANT is JSON with the org, project and key.
 */
const { ADMIN_TOKEN = "", AUDIENCE = "", DATABASE_URL, ISSUER = "", PORT, TENANT = "{}" } = process.env
const pool = new Pool({ connectionString: DATABASE_URL!, max: 10 })
const sha256 = (text: string) => hash("sha256", text, "buffer")
const tenant = JSON.parse(TENANT) as { orgId: string; projectId: string; key: string; endpoints: number }
await createTables(pool, { ...tenant, hash: sha256(tenant.key) })

const adminHash = sha256(ADMIN_TOKEN)
const requireAdministrator = async (request: FastifyRequest, reply: FastifyReply) => {
  const token = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "")?.[1] ?? ""
  if (!timingSafeEqual(sha256(token), adminHash)) return reply.code(401).send({ error: "Who is asking?" })
}

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const makeKey = () => {
  let random = ""
  while (random.length < 36) for (const byte of randomBytes(48)) if (byte < 248) random += alphabet[byte % 62]
  random = random.slice(0, 36)
  let sum = ""
  for (let rest = crc32(random), n = 0; n < 6; n++, rest = Math.floor(rest / 62)) sum = alphabet[rest % 62] + sum
  return `svc_${random}${sum}`
}

const text = { type: "string" }
const nonEmpty = { type: "string", minLength: 1 }
const nullable = { type: ["string", "null"] }
const object = (properties: object, required: ReadonlyArray<string> = []) => ({ type: "object", properties, required })
const app = Fastify()
app.get("/healthz", () => "ok")

app.post<{ Body: { name: string; projectId: string } }>(
  "/api/v0/keys",
  {
    preHandler: requireAdministrator,
    schema: {
      body: object({ name: nonEmpty, projectId: nonEmpty }, ["name", "projectId"]),
      response: { 200: object({ id: text, name: text, prefix: text, key: text }) },
    },
  },
  async ({ body, id: requestId }, reply) => {
    const key = makeKey()
    const id = ulid()
    const details = JSON.stringify({ name: body.name, prefix: key.slice(0, 12), projectId: body.projectId })
    const { rowCount } = await pool.query({
      name: "create-key",
      text: `WITH made AS (
          INSERT INTO api_keys (id, name, prefix, hash, created_at, org_id, project_id)
          SELECT $1, $2, $3, $4, $5, org_id, id FROM projects WHERE id = $6 RETURNING id, org_id
        )
        INSERT INTO audit_log (id, org_id, at, actor, action, target, details, request_id)
        SELECT $7, org_id, $5, 'administrator', 'key.create', id, $8, $9 FROM made`,
      values: [id, body.name, key.slice(0, 12), sha256(key), new Date(), body.projectId, ulid(), details, requestId],
    })
    if (rowCount === 0) return reply.code(404).send({ error: "There is no such project." })
    return { id, name: body.name, prefix: key.slice(0, 12), key }
  },
)

app.post<{ Body: { name: string; orgId: string } }>(
  "/api/v0/projects",
  {
    preHandler: requireAdministrator,
    schema: {
      body: object({ name: nonEmpty, orgId: nonEmpty }, ["name", "orgId"]),
      response: {
        200: object({
          projectId: text,
          orgId: text,
          name: text,
          subdomain: nullable,
          currentDeploymentId: nullable,
          defaultBranch: nullable,
          hostOwner: nullable,
          hostRepo: nullable,
          createdAt: text,
          updatedAt: text,
        }),
      },
    },
  },
  async ({ body, id: requestId }, reply) => {
    const { rows } = await pool.query({
      name: "create-project",
      text: `WITH made AS (
          INSERT INTO projects (id, org_id, name, created_at, updated_at)
          SELECT $1, id, $2, $3, $3 FROM orgs WHERE id = $4 RETURNING *
        ), logged AS (
          INSERT INTO audit_log (id, org_id, at, actor, action, target, details, request_id)
          SELECT $5, org_id, $3, 'administrator', 'project.create', id, $6, $7 FROM made
        )
        SELECT id AS "projectId", org_id AS "orgId", name, subdomain, current_deployment_id AS "currentDeploymentId",
          default_branch AS "defaultBranch", host_owner AS "hostOwner", host_repo AS "hostRepo",
          created_at AS "createdAt", updated_at AS "updatedAt" FROM made`,
      values: [ulid(), body.name, new Date(), body.orgId, ulid(), JSON.stringify({ name: body.name }), requestId],
    })
    return rows[0] ?? reply.code(404).send({ error: "There is no such org." })
  },
)

const jwks = createRemoteJWKSet(new URL(`${ISSUER}/.well-known/jwks`))
app.post("/api/v0/register-deployment", { schema: { body: object({}) } }, async (request, reply) => {
  const token = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "")?.[1] ?? ""
  let claims: Claims
  try {
    const verified = await jwtVerify<Claims>(token, jwks, {
      algorithms: ["RS256"],
      issuer: ISSUER,
      audience: AUDIENCE,
      requiredClaims: ["exp"],
    })
    claims = verified.payload
  } catch {
    return reply.code(401).send({ error: "The token is not valid." })
  }
  const registered = await register(pool, claims)
  return registered ?? reply.code(401).send({ error: "The token's claims are not those of a run." })
})

app.post(
  "/v1/webhooks/list",
  {
    schema: {
      response: {
        "2xx": object({
          webhook_endpoints: {
            type: "array",
            items: object({
              webhook_endpoint_id: text,
              url: text,
              description: nullable,
              active: { type: "boolean" },
              created_at: text,
              updated_at: text,
            }),
          },
        }),
      },
    },
  },
  async (request, reply) => {
    const keys = await pool.query({
      name: "find-key",
      text: "SELECT org_id FROM api_keys WHERE hash = $1 AND (expires_at IS NULL OR expires_at > now())",
      values: [sha256(String(request.headers["x-api-key"]))],
    })
    if (keys.rowCount === 0) return reply.code(401).send({ success: false, message: "The key is not valid." })
    const { rows } = await pool.query({
      name: "list-endpoints",
      text: `SELECT id AS webhook_endpoint_id, url, description, active, created_at, updated_at
        FROM webhook_endpoints WHERE org_id = $1 ORDER BY id`,
      values: [keys.rows[0].org_id],
    })
    return { webhook_endpoints: rows }
  },
)

process.stdin.resume().once("end", () => process.exit())
await app.listen({ port: Number(PORT), host: "127.0.0.1" })
