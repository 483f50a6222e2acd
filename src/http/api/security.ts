import { Context } from "effect"
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
  orgId: {
    type: "apiKey",
    in: "header",
    name: "x-org-id",
    description: "The id of the org that the administrator acts for. It is no secret, and ignored beside an API key.",
  },
  ciToken: { type: "http", scheme: "bearer", description: "The OIDC token of a GitHub Actions run." },
} as const

/**
 * Which principals an operation admits; its service decides what each may do. `credential`: a valid credential, in open
 * mode anyone. `anyone`: no credential needed, but an invalid one is refused. `key`: an API key in `x-api-key`, or the administrator with `x-org-id`. `ciRun`:
 * the OIDC token of a run that may register.
 */
export const Admits = Context.Reference<"credential" | "anyone" | "key" | "ciRun">("gatehouse/http/security/Admits", {
  defaultValue: () => "credential",
})

type Scheme = keyof typeof securitySchemes

const describe = (
  admits: typeof Admits.Service,
  sentence: string,
  /** A list of schemes is needed together. */
  schemes: ReadonlyArray<Scheme | ReadonlyArray<Scheme>>,
) =>
  OpenApi.annotations({
    override: {
      // `{}`: no credential needed, as in open mode.
      security: [
        ...(admits === "credential" || admits === "anyone" ? [{}] : []),
        ...schemes.map((scheme) => Object.fromEntries([scheme].flat().map((name) => [name, []]))),
      ],
      "x-gatehouse-access": sentence,
    },
  }).pipe(Context.add(Admits, admits))

/** Who may call an operation. The server enforces it, and the OpenAPI document shows it. */
export const access = {
  administrator: describe("credential", "Guarded mode: the administrator. Open mode: anyone.", ["adminToken"]),
  management: describe(
    "credential",
    "Guarded mode: the administrator, or an org key for its own org. Open mode: anyone.",
    ["adminToken", "apiKey", "apiKeyHeader"],
  ),
  anyone: describe(
    "anyone",
    "Anyone, in both modes. With a credential of its own, a client's failures are not limited.",
    ["adminToken", "apiKey", "apiKeyHeader"],
  ),
  chat: describe(
    "credential",
    "A project key, in both modes; an org key is a 403. Open mode: also anyone without a credential. Rate limit: 120 " +
      "a minute for each key, 60 for each client address without one.",
    ["apiKey", "apiKeyHeader"],
  ),
  tenant: describe(
    "key",
    "Any valid API key, in both modes; the tenant is the org of the key. Also the administrator (open mode: anyone) with " +
      "x-org-id; the tenant is that org.",
    ["apiKeyHeader", ["adminToken", "orgId"]],
  ),
  ci: describe("ciRun", "A CI run, with its OIDC token.", ["ciToken"]),
}
