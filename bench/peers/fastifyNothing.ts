import Fastify from "fastify"

/** Fastify that only reads the body: the most that a server on it can do. */
const app = Fastify()
app.get("/healthz", () => "ok")
app.post(
  "/api/v0/keys/validate",
  {
    schema: {
      body: { type: "object", required: ["key"], properties: { key: { type: "string", minLength: 1 } } },
      response: {
        200: {
          type: "object",
          properties: { keyId: { type: "string" }, orgId: { type: "string" }, projectId: { type: "string" } },
        },
      },
    },
  },
  () => ({ keyId: "01KAHBMKZ3D2X7S5QN8W4V6R9T", orgId: "01KAHBMKZ3D2X7S5QN8W4V6R9T", projectId: "" }),
)
process.stdin.resume().once("end", () => process.exit())
await app.listen({ port: Number(process.env["PORT"]), host: "127.0.0.1" })
