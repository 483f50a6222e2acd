import { limitNames, limits } from "../domain/orgs/OrgLimits.ts"
import { defaultAuditRetentionDays, defaultRetentionDays } from "../domain/Retention.ts"
import { defaultKeysUrl } from "../infrastructure/keys/GithubSignatures.ts"

/** An environment variable of the service. */
export interface Variable {
  /** A valid value, as one writes it in a shell; `$(…)` prints one. */
  readonly example: string
  /** The value of an unset variable; none: what `text` says. */
  readonly default?: string
  /** What it sets, for docs/configuration.md: links are relative to that page. */
  readonly text: string
}

const limitTexts: Readonly<Record<string, string>> = {
  LIMIT_PENDING_DELIVERIES:
    "pending deliveries of an org; above the limit, Gatehouse deactivates the endpoint with the most pending deliveries",
  LIMIT_UNFINISHED_JOBS: "queued and running jobs of an org",
  LIMIT_WAITING_CLAIMS: "waiting job claims of an org at one replica",
  LIMIT_STORED_BYTES: "stored bytes of an org; a number alone or with KiB, MiB, GiB or TiB",
}

const ofLimits: Readonly<Record<`LIMIT_${string}`, Variable>> = Object.fromEntries(
  limitNames.map((name) => {
    const { defaultValue, unit, variable } = limits[name]
    const value = name === "storedBytes" ? `${defaultValue / 1024 ** 3}GiB` : String(defaultValue)
    return [variable, { example: value, default: value, text: limitTexts[variable] ?? `${unit} of an org` }]
  }),
)

/** Every environment variable of the service, by the sections of docs/configuration.md, which is made from it. */
export const sections = {
  "Listen and be found": {
    PORT: { example: "3000", default: "3000", text: "the port" },
    HOST: {
      example: "0.0.0.0",
      default: "127.0.0.1",
      text: "the address to listen on; open mode listens on loopback only",
    },
    BASE_URL: {
      example: "https://gatehouse.example.com",
      default: "`http://HOST:PORT`",
      text: "the public address of the service, and the default audience of CI tokens; Gatehouse removes a slash at the end. If it is unset in guarded mode, the start prints a warning",
    },
    TRUST_PROXY: {
      example: "1",
      default: "0",
      text: "how many proxies in front may set `x-forwarded-for`",
    },
  },
  "Store data": {
    DATABASE_URL: {
      example: "postgres://user:password@localhost:5432/gatehouse",
      text: "PostgreSQL, as psql takes it, also [with TLS or a socket](deploying.md#connect-to-postgresql); unset: the embedded database",
    },
    ENCRYPTION_KEY: {
      example: "$(openssl rand -base64 32)",
      text: "32 bytes in base64, required with `DATABASE_URL`; several keys separated by commas [while you rotate](encryption.md). With the embedded database, Gatehouse creates a key and keeps it in `DATA_DIR`",
    },
    DATA_DIR: {
      example: "./data",
      default: "./data",
      text: "the folder of the embedded database; `memory` keeps nothing",
    },
    LISTEN_URL: {
      example: "postgres://user:password@localhost:5432/gatehouse",
      default: "`DATABASE_URL`",
      text: "the same database, at the address for `LISTEN`: around a [pooler](scaling.md#use-pgbouncer), for example",
    },
    NODES: {
      example: '"east=postgres://user:password@db1:5432/gatehouse west=postgres://user:password@db2:5432/gatehouse"',
      text: "further PostgreSQL databases that have the rows of some orgs: `name=url`, [separated by spaces](scaling.md#place-orgs-on-several-postgresql-servers)",
    },
    RETENTION_DAYS: {
      example: "90",
      default: `${defaultRetentionDays}`,
      text: "how long finished jobs and their events, deliveries and attempts are kept, 1 to 36500; `off`: forever",
    },
    AUDIT_RETENTION_DAYS: {
      example: "400",
      default: `${defaultAuditRetentionDays}`,
      text: "how long entries of the audit log are kept, 1 to 36500; `off`: forever",
    },
  },
  "Let people and keys in": {
    ADMIN_TOKEN: {
      example: "$(openssl rand -hex 32)",
      text: "the administrator's token, 16 characters or more; [several](access.md#replace-the-administrators-token) separated by commas; unset: open mode",
    },
    CONSOLE_OIDC_ISSUER: {
      example: "https://login.example.com",
      text: "the provider of OpenID Connect at which [people sign in to the console](sign-in.md), an https URL; with the other three, or none of them",
    },
    CONSOLE_OIDC_CLIENT_ID: { example: "gatehouse", text: "the service's own id there" },
    CONSOLE_OIDC_CLIENT_SECRET: { example: "…", text: "the service's own secret there" },
    CONSOLE_OIDC_ROLES: {
      example: `'{"groups":{"platform-team":"administrator","support":"operator"}}'`,
      text: "[the roles of people](sign-in.md#give-roles-to-groups), as JSON",
    },
    KEY_CACHE_SIZE: {
      example: "100000",
      default: "by memory, at most 100000",
      text: "how many valid keys are kept in memory, about half a kilobyte each. Default: as many as fit into an eighth of the memory. 0: every validation asks the database",
    },
    GITHUB_SECRET_SCANNING_KEYS_URL: {
      example: defaultKeysUrl,
      default: "GitHub's",
      text: "where Gatehouse reads the public keys that verify reports of GitHub's secret scanning: [leaked keys](keys.md#disable-keys-that-leak)",
    },
  },
  "Register deployments from CI": {
    OIDC_ALLOWED_OWNERS: {
      example: "acme,gitlab:acme",
      default: "`*` in open mode",
      text: "[whose repositories may register](deployments.md#say-whose-repositories-may-register), as `owner` for GitHub or `provider:owner`, separated by commas; unset in guarded mode: only repositories that are linked to a project, or whose owner is in the `owners` of an org",
    },
    OIDC_AUDIENCE: {
      example: "https://gatehouse.example.com",
      default: "`BASE_URL`",
      text: "accepted audiences of CI tokens, separated by commas",
    },
    OIDC_DEFAULT_BRANCHES: {
      example: "main,master",
      default: "main,master",
      text: "the first push to one of these branches makes it the default branch of a project that has none",
    },
    OIDC_PROVIDERS: {
      example: "/etc/gatehouse/providers.json",
      text: "the path of a [file of CI providers](ci.md), which replaces `GITHUB_OIDC_ISSUER`; unset: GitHub",
    },
    GITHUB_OIDC_ISSUER: {
      example: "https://github.example.com/_services/token",
      default: "GitHub's",
      text: "the issuer, for GitHub Enterprise Server",
    },
  },
  "Send webhooks": {
    ALLOW_PRIVATE_NETWORKS: {
      example: "true",
      default: "true in open mode",
      text: "whether tenants' URLs may lead into private networks, such as to [a receiver on your machine](running-webhooks.md#try-webhooks-in-guarded-mode)",
    },
    EGRESS_PROXY: {
      example: "http://proxy.internal:3128",
      text: "a proxy for [requests to tenants' URLs](running-webhooks.md#send-through-a-proxy), http or https, also as `http://user:password@proxy.internal:3128`",
    },
    WEBHOOK_RETRY_DELAYS: {
      example: "5s,5m,30m,2h",
      default: "5s,5m,30m,2h,5h,10h,14h,20h,24h",
      text: "the waits between attempts, each ± 20 %",
    },
    WEBHOOK_TIMEOUT: {
      example: "15s",
      default: "15s",
      text: "the deadline of an attempt, with connection and response",
    },
    WEBHOOK_ENDPOINT_CONCURRENCY: {
      example: "10",
      default: "10",
      text: "attempts in flight to one endpoint in each replica, 1 to 1000",
    },
  },
  "Limit orgs": ofLimits,
  "Answer chats": {
    AI_BASE_URL: {
      example: "https://api.openai.com/v1",
      text: "an OpenAI-compatible server for the chat; unset: the chat quotes passages",
    },
    AI_MODEL: { example: "gpt-5-mini", text: "its model; with `AI_BASE_URL`" },
    AI_API_KEY: { example: "sk-…", text: "the API key of that server, if it needs one" },
    AI_UNVERIFIED: {
      example: "omit",
      default: "mark",
      text: "what to do with a model's sentence that no quotation proves: `mark` it or `omit` it ([proof](chat.md#trust-the-answers-of-a-model))",
    },
    CHAT_INDEX_MEMORY: {
      example: "80MiB",
      default: "by memory, at most 80MiB",
      text: "memory for the [indexes of the chat's documentation](chat.md#prepare-the-documents), 16MiB or more",
    },
  },
  "Show the portal": {
    PORTAL_NAME: {
      example: "Acme",
      default: "Gatehouse",
      text: "your name in [the portal](console.md#give-a-tenant-a-portal), up to 60 characters",
    },
    PORTAL_LOGO: {
      example: "/etc/gatehouse/logo.svg",
      text: "the path of an .svg or .png file up to 100 KiB, which the service serves itself",
    },
    PORTAL_COLOR: {
      example: "#0b57a4",
      text: "the color of buttons and links there; white text on it must have a contrast of 4.5",
    },
    PORTAL_TEXT: {
      example: '"Webhooks of Acme"',
      text: "what its first page says to your tenants, up to 300 characters",
    },
    PORTAL_HELP_URL: { example: "https://example.com/docs/webhooks", text: "where its menu leads for help" },
    PORTAL_ORIGINS: {
      example: "https://app.example.com",
      text: "the origins whose pages may show [the portal in a frame](portal.md), comma-separated; unset: none",
    },
  },
  Observe: {
    LOG_LEVEL: { example: "info", default: "info", text: "trace, debug, info, warn, error, fatal, none" },
    LOG_FORMAT: { example: "json", default: "pretty on a terminal, else json", text: "pretty or json" },
    METRICS_TOKEN: {
      example: "$(openssl rand -hex 32)",
      text: "guarded mode: the token for `/metrics`, 16 characters or more; unset: only this machine and the administrator may read `/metrics`",
    },
    OTEL_EXPORTER_OTLP_ENDPOINT: {
      example: "http://localhost:4318",
      text: "where to send traces, metrics and logs (OTLP over HTTP)",
    },
    OTEL_EXPORTER_OTLP_HEADERS: {
      example: "x-api-key=example",
      text: "headers of what is sent there: `name=value` separated by commas, percent-encoded",
    },
    OTEL_SERVICE_NAME: { example: "gatehouse", default: "gatehouse", text: "the name of the service there" },
    OTEL_RESOURCE_ATTRIBUTES: {
      example: "deployment.environment.name=production",
      text: "further attributes of the service there: `key=value` separated by commas, percent-encoded",
    },
  },
} satisfies Readonly<Record<string, Readonly<Record<string, Variable>>>>

type Sections = typeof sections
/** The name of a variable. */
export type VariableName = { readonly [Title in keyof Sections]: keyof Sections[Title] }[keyof Sections]

/** Every environment variable of the service, by its name. */
export const variables = Object.assign({}, ...Object.values(sections)) as Readonly<Record<VariableName, Variable>>
