import { OpenApi } from "effect/http-api"

/** The names of the security schemes in the OpenAPI document. */
export const securitySchemes = {
  adminToken: {
    type: "http",
    scheme: "bearer",
    description:
      "The administrator: a token of the server's ADMIN_TOKEN. Without ADMIN_TOKEN, the server runs in open mode.",
  },
  apiKey: { type: "http", scheme: "bearer", description: "An API key, svc_…: an org key or a project key." },
  apiKeyHeader: { type: "apiKey", in: "header", name: "x-api-key", description: "An API key in its own header." },
  ciToken: { type: "http", scheme: "bearer", description: "The OIDC token of a GitHub Actions run." },
} as const

const describe = (sentence: string, schemes: ReadonlyArray<keyof typeof securitySchemes>, optional: boolean) =>
  OpenApi.annotations({
    override: {
      security: [...(optional ? [{}] : []), ...schemes.map((scheme) => ({ [scheme]: [] }))],
      "x-gatehouse-access": sentence,
    },
  })

/**
 * Who may call an operation, for the OpenAPI document: `{}` among the requirements is open mode, where none is needed.
 */
export const access = {
  administrator: describe("Guarded mode: the administrator. Open mode: anyone.", ["adminToken"], true),
  management: describe(
    "Guarded mode: the administrator, or an org key for its own org. Open mode: anyone.",
    ["adminToken", "apiKey", "apiKeyHeader"],
    true,
  ),
  anyone: describe(
    "Anyone, in both modes. With a credential of its own, a client's failures are not limited.",
    ["adminToken", "apiKey", "apiKeyHeader"],
    true,
  ),
  chat: describe(
    "A project key, in both modes; an org key is a 403. Open mode: also anyone without a credential. Rate limit: 120 " +
      "a minute for each key, 60 for each client address without one.",
    ["apiKey", "apiKeyHeader"],
    true,
  ),
  tenant: describe("Any valid API key, in both modes. The tenant is the org of the key.", ["apiKeyHeader"], false),
  ci: describe("A CI run, with its OIDC token.", ["ciToken"], false),
}
