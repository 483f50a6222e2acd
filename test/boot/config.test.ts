import { describe, expect } from "@effect/vitest"
import { ConfigProvider, Duration, Effect, Exit, Redacted, Result } from "effect"
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { type AddressInfo, createServer, type Server } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Settings } from "#src/boot/config.ts"
import * as Config from "#src/boot/config.ts"
import { it } from "../support/it.ts"

/**
 * Promise (Portal): The look of the portal is for its readers alone, and a color of the operator keeps a contrast of
 * 4.5.
 */

type Environment = Readonly<Record<string, string>>

const load = (environment: Environment) =>
  Config.load.pipe(Effect.provide(ConfigProvider.layer(ConfigProvider.fromEnvRecord(environment))))

const refusal = (environment: Environment) =>
  Effect.map(Effect.result(load(environment)), (result) =>
    Result.isFailure(result) ? result.failure.message : expect.fail(`${JSON.stringify(environment)} was taken`),
  )

const key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
const token = "0123456789abcdef-token"

const proxyWithoutUser = ["http://proxy.internal:3128", undefined]

interface Variable {
  /** Valid values, with the setting that each becomes. */
  readonly good: ReadonlyArray<readonly [value: string, field: (settings: Settings) => unknown, expected: unknown]>
  /** Invalid values. */
  readonly bad: ReadonlyArray<string>
  /** Other variables that must be set for the value to apply. */
  readonly with?: Environment
}

const secretOf = (value: Redacted.Redacted<unknown> | undefined) => value && Redacted.value(value)

const picture = (name: string, content: string | Uint8Array) => {
  const path = join(pictures, name)
  writeFileSync(path, content)
  return path
}
const pictures = mkdtempSync(join(tmpdir(), "gatehouse-config-"))
const svg = picture("logo.svg", "<svg/>")

const org = "01KAHBMKZ3D2X7S5QN8W4V6R9T"
/** All variables of signing in with the company's identity. */
const signIn: Environment = {
  ADMIN_TOKEN: token,
  CONSOLE_OIDC_ISSUER: "https://login.example.com",
  CONSOLE_OIDC_CLIENT_ID: "gatehouse",
  CONSOLE_OIDC_CLIENT_SECRET: "the-client's-own",
  CONSOLE_OIDC_ROLES: '{"groups":{"ops":"operator"}}',
}

const without = (name: string): Environment =>
  Object.fromEntries(Object.entries(signIn).filter(([other]) => other !== name))

/** Every variable, written down here and not read from the definition under test. */
const variables: Record<string, Variable> = {
  PORT: {
    good: [
      ["8080", (_) => _.port, 8080],
      ["0", (_) => _.port, 0],
      ["65535", (_) => _.port, 65_535],
    ],
    bad: ["-1", "65536", "3000.5", "http", "0x10", "3e3", " 80"],
  },
  HOST: {
    good: [
      ["localhost", (_) => _.host, "localhost"],
      ["::1", (_) => _.baseUrl, "http://[::1]:3000"],
    ],
    bad: ["0.0.0.0", "::", "10.0.0.1", "example.com", "127.example.com"],
  },
  BASE_URL: {
    good: [["https://gatehouse.example/", (_) => _.baseUrl, "https://gatehouse.example"]],
    bad: ["gatehouse.example", "ftp://gatehouse.example", "https://", "javascript:alert(1)"],
  },
  DATABASE_URL: {
    good: [
      ["postgres://u:p@localhost/db", (_) => secretOf(_.databaseUrl), "postgres://u:p@localhost/db"],
      ["postgresql://localhost/db", (_) => secretOf(_.databaseUrl), "postgresql://localhost/db"],
    ],
    bad: [
      "mysql://u:secret-password@localhost/db",
      "localhost",
      "postgres://",
      "postgres://u:secret-password@local host/db",
    ],
    with: { ENCRYPTION_KEY: key },
  },
  LISTEN_URL: {
    good: [["postgres://u:p@direct/db", (_) => secretOf(_.listenUrl), "postgres://u:p@direct/db"]],
    bad: ["mysql://u:secret-password@direct/db", "direct"],
    with: { ENCRYPTION_KEY: key, DATABASE_URL: "postgres://u:p@pooler/db" },
  },
  DATA_DIR: {
    good: [
      ["/var/lib/gatehouse", (_) => _.dataDir, "/var/lib/gatehouse"],
      ["memory", (_) => _.dataDir, "memory"],
    ],
    bad: [],
  },
  ADMIN_TOKEN: {
    good: [
      [token, (_) => _.adminTokens?.map(secretOf), [token]],
      [`${token},${key}, ${token}2`, (_) => _.adminTokens?.map(secretOf), [token, key, `${token}2`]],
    ],
    bad: [
      "secret-short",
      "secret with spaces in it",
      "secret-with-a-newline\n",
      `${token},secret-short`,
      `secret-short,${token}`,
      `${token},`,
      `${token},,${token}2`,
      `secret-${token},secret with spaces in it`,
      ",",
    ],
  },
  ENCRYPTION_KEY: {
    good: [
      [key, (_) => _.encryptionKeys?.map((_) => Redacted.value(_).length), [32]],
      [`${key}, ${key}`, (_) => _.encryptionKeys?.length, 2],
    ],
    bad: ["c2VjcmV0LXRvby1zaG9ydA==", key.slice(0, -1), `${key},secret`, "secret".repeat(10), key.replace("A", "!")],
  },
  OIDC_AUDIENCE: {
    good: [
      ["https://a.example, https://b.example", (_) => _.oidcAudiences, ["https://a.example", "https://b.example"]],
    ],
    bad: [",", "https://a.example,"],
  },
  OIDC_ALLOWED_OWNERS: {
    good: [
      [
        "acme, gitlab:acme/docs",
        (_) => _.allowedOwners,
        [
          { provider: "github", owner: "acme" },
          { provider: "gitlab", owner: "acme/docs" },
        ],
      ],
      ["*", (_) => _.allowedOwners, "any"],
      ["acme,*", (_) => _.allowedOwners, "any"],
    ],
    bad: [",", "a b", "acme,,octocat", "acme/docs", "GitLab:acme", "gitlab:", ":acme"],
  },
  OIDC_DEFAULT_BRANCHES: {
    good: [["trunk, release/1", (_) => _.defaultBranches, ["trunk", "release/1"]]],
    bad: [",", "a b", "main,"],
  },
  GITHUB_OIDC_ISSUER: {
    good: [["https://ghes.example/_services/token", (_) => _.githubIssuer, "https://ghes.example/_services/token"]],
    bad: ["ghes.example", "file:///etc/passwd", "http://ghes.example"],
  },
  GITHUB_SECRET_SCANNING_KEYS_URL: {
    good: [["https://ghes.example/keys", (_) => _.githubKeysUrl, "https://ghes.example/keys"]],
    bad: ["ghes.example", "http://ghes.example/keys"],
  },
  ALLOW_PRIVATE_NETWORKS: {
    good: [
      ["true", (_) => _.allowPrivateNetworks, true],
      ["FALSE", (_) => _.allowPrivateNetworks, false],
    ],
    bad: ["yes", "1", "truee"],
  },
  EGRESS_PROXY: {
    good: [
      ["http://proxy.internal:3128", (_) => [_.egressProxy?.origin, _.egressProxy?.authorization], proxyWithoutUser],
      ["https://proxy.internal/", (_) => _.egressProxy?.origin, "https://proxy.internal"],
      ["http://u:p%40%2F@[::1]:3128", (_) => _.egressProxy?.origin, "http://[::1]:3128"],
      ["http://u:p%40%2F@[::1]:3128", (_) => secretOf(_.egressProxy?.authorization), `Basic ${btoa("u:p@/")}`],
    ],
    bad: [
      "proxy.internal:3128",
      "socks5://proxy.internal",
      "http://",
      "http://u:secret-password@proxy:3128/path",
      "http://u:secret-password@proxy:99999",
      "http://u:secret%zz@proxy:3128",
      "http://u:secret password@proxy:3128",
      "http://proxy:3128?secret",
    ],
  },
  ...Object.fromEntries(
    Object.entries({
      LIMIT_PROJECTS: "projects",
      LIMIT_KEYS: "keys",
      LIMIT_ENDPOINTS: "endpoints",
      LIMIT_SCHEDULES: "schedules",
      LIMIT_UNFINISHED_JOBS: "unfinishedJobs",
      LIMIT_PENDING_DELIVERIES: "pendingDeliveries",
      LIMIT_WAITING_CLAIMS: "waitingClaims",
    } as const).map(([variable, name]): [string, Variable] => [
      variable,
      { good: [["0", (_) => _.limits[name], 0]], bad: ["-1", "many", "1e3", "1000000000"] },
    ]),
  ),
  LIMIT_STORED_BYTES: {
    good: [
      ["0", (_) => _.limits.storedBytes, 0],
      ["1000", (_) => _.limits.storedBytes, 1000],
      ["2MiB", (_) => _.limits.storedBytes, 2 * 1024 ** 2],
      ["1000TiB", (_) => _.limits.storedBytes, 1000 * 1024 ** 4],
    ],
    bad: ["-1", "1GB", "1 GiB", "1.5GiB", "GiB", "1001TiB"],
  },
  PORTAL_NAME: { good: [[" Acme & Söhne ", (_) => _.portal.name, "Acme & Söhne"]], bad: ["a\nb", "x".repeat(61), " "] },
  PORTAL_TEXT: { good: [["Your webhooks.", (_) => _.portal.text, "Your webhooks."]], bad: ["a\tb", "x".repeat(301)] },
  PORTAL_HELP_URL: {
    good: [["https://example.com/docs", (_) => _.portal.helpUrl, "https://example.com/docs"]],
    bad: ["javascript:alert(1)", "example.com"],
  },
  PORTAL_COLOR: {
    good: [
      ["#0B57A4", (_) => _.portal.color, "#0b57a4"],
      // The brightest grey that white text may stand on.
      ["#767676", (_) => _.portal.color, "#767676"],
    ],
    bad: ["#777777", "#ffd500", "blue", "#123", "#12345g", "0b57a4"],
  },
  PORTAL_LOGO: {
    good: [[svg, (_) => _.portal.logo?.extension, ".svg"]],
    bad: [
      join(pictures, "none.svg"),
      picture("logo.gif", "GIF89a"),
      picture("page.svg", "<html></html>"),
      picture("other.png", "<svg/>"),
      picture("large.svg", `<svg>${" ".repeat(102_400)}</svg>`),
    ],
  },
  AI_UNVERIFIED: { good: [["omit", (_) => _.aiUnverified, "omit"]], bad: ["hide", "true"] },
  CHAT_INDEX_MEMORY: { good: [["128MiB", (_) => _.chatIndexMemory, 134_217_728]], bad: ["-1", "many", "15MiB"] },
  KEY_CACHE_SIZE: { good: [["0", (_) => _.keyCacheSize, 0]], bad: ["-1", "many", "10000001"] },
  TRUST_PROXY: { good: [["2", (_) => _.trustedProxies, 2]], bad: ["true", "-1", "11", "loopback"] },
  WEBHOOK_RETRY_DELAYS: {
    good: [
      [
        "100ms,5s,5m,2h,1d",
        (_) => _.webhookRetryDelays?.map(Duration.toMillis),
        [100, 5_000, 300_000, 7_200_000, 86_400_000],
      ],
    ],
    bad: ["5", "5s,soon", "5 s", "-5s", "1w", "5s,,1m"],
  },
  WEBHOOK_ENDPOINT_CONCURRENCY: {
    good: [
      ["1", (_) => _.endpointConcurrency, 1],
      ["1000", (_) => _.endpointConcurrency, 1000],
    ],
    bad: ["0", "1001", "-1", "1.5", "ten"],
  },
  RETENTION_DAYS: {
    good: [
      ["1", (_) => _.retentionDays, 1],
      ["36500", (_) => _.retentionDays, 36_500],
      ["OFF", (_) => _.retentionDays, undefined],
    ],
    bad: ["0", "-1", "36501", "1.5", "90d", "never"],
  },
  AUDIT_RETENTION_DAYS: {
    good: [
      ["1", (_) => _.auditRetentionDays, 1],
      ["off", (_) => _.auditRetentionDays, undefined],
    ],
    bad: ["0", "36501", "400d"],
  },
  WEBHOOK_TIMEOUT: {
    good: [["3s", (_) => Duration.toMillis(_.webhookTimeout), 3_000]],
    bad: ["3", "fast", "0s", "99ms"],
  },
  AI_BASE_URL: {
    good: [["http://localhost:11434/v1", (_) => _.ai?.baseUrl, "http://localhost:11434/v1"]],
    bad: ["localhost:11434"],
    with: { AI_MODEL: "some-model" },
  },
  AI_MODEL: {
    good: [["some-model", (_) => _.ai?.model, "some-model"]],
    bad: [],
    with: { AI_BASE_URL: "http://localhost:11434/v1" },
  },
  AI_API_KEY: {
    good: [["sk-1", (_) => secretOf(_.ai?.apiKey), "sk-1"]],
    bad: [],
    with: { AI_BASE_URL: "http://localhost:11434/v1", AI_MODEL: "some-model" },
  },
  METRICS_TOKEN: {
    good: [[token, (_) => secretOf(_.metricsToken), token]],
    bad: ["secret-short", "secret with spaces in it", "secret-with-a-newline\n"],
  },
  LOG_LEVEL: {
    good: [
      ["debug", (_) => _.logLevel, "debug"],
      ["WARN", (_) => _.logLevel, "warn"],
    ],
    bad: ["verbose", "infos"],
  },
  LOG_FORMAT: {
    good: [
      ["json", (_) => _.logFormat, "json"],
      ["pretty", (_) => _.logFormat, "pretty"],
    ],
    bad: ["xml"],
  },
  CONSOLE_OIDC_ISSUER: {
    good: [
      ["https://login.example.com/", (_) => _.people?.issuer, "https://login.example.com/"],
      ["http://127.0.0.1:8080/realms/acme", (_) => _.people?.issuer, "http://127.0.0.1:8080/realms/acme"],
    ],
    bad: ["http://login.example.com", "login.example.com"],
    with: without("CONSOLE_OIDC_ISSUER"),
  },
  CONSOLE_OIDC_CLIENT_ID: {
    good: [["gatehouse", (_) => _.people?.clientId, "gatehouse"]],
    bad: ["secret\nline"],
    with: without("CONSOLE_OIDC_CLIENT_ID"),
  },
  CONSOLE_OIDC_CLIENT_SECRET: {
    good: [["secret %+: x", (_) => secretOf(_.people?.clientSecret), "secret %+: x"]],
    bad: [],
    with: without("CONSOLE_OIDC_CLIENT_SECRET"),
  },
  CONSOLE_OIDC_ROLES: {
    good: [
      [
        `{"groups":{"ops, all":"operator","shop":["owner:${org}","viewer"]},"https://acme.com/roles":{"a":"viewer:${org}"}}`,
        (_) => _.people?.rules,
        [
          { claim: "groups", value: "ops, all", role: "operator", orgId: "" },
          { claim: "groups", value: "shop", role: "owner", orgId: org },
          { claim: "groups", value: "shop", role: "viewer", orgId: "" },
          { claim: "https://acme.com/roles", value: "a", role: "viewer", orgId: org },
        ],
      ],
    ],
    bad: [
      "secret-groups",
      "{}",
      "[]",
      "null",
      '{"groups":{}}',
      '{"groups":"administrator"}',
      '{"groups":{"secret":"root"}}',
      '{"groups":{"secret":"owner"}}',
      `{"groups":{"secret":"administrator:${org}"}}`,
      '{"groups":{"secret":"owner:acme"}}',
      '{"groups":{"secret":[]}}',
      '{"groups":{"secret":["viewer",7]}}',
      '{"":{"secret":"viewer"}}',
    ],
    with: without("CONSOLE_OIDC_ROLES"),
  },
  OTEL_EXPORTER_OTLP_ENDPOINT: {
    good: [["http://localhost:4318", (_) => _.otlp?.endpoint, "http://localhost:4318"]],
    bad: ["localhost:4318"],
  },
  OTEL_EXPORTER_OTLP_HEADERS: {
    good: [
      [
        "authorization=Bearer%20a%2Cb%3D, x-team = ops",
        (_) => _.otlp?.headers && Redacted.value(_.otlp.headers),
        { authorization: "Bearer a,b=", "x-team": "ops" },
      ],
    ],
    bad: ["secret", "secret=a=b", "=secret", "x=%secret", "x y=secret", "x=secret%0d%0a"],
    with: { OTEL_EXPORTER_OTLP_ENDPOINT: "http://localhost:4318" },
  },
  OTEL_SERVICE_NAME: {
    good: [["gatehouse-eu", (_) => _.otlp?.serviceName, "gatehouse-eu"]],
    bad: [],
    with: { OTEL_EXPORTER_OTLP_ENDPOINT: "http://localhost:4318", OTEL_RESOURCE_ATTRIBUTES: "service.name=other" },
  },
  OTEL_RESOURCE_ATTRIBUTES: {
    good: [
      ["a.b=c%20d,e=", (_) => _.otlp?.attributes, { "a.b": "c d", e: "" }],
      ["service.name=other", (_) => _.otlp?.serviceName, "other"],
      ["a=b", (_) => _.otlp?.serviceName, "gatehouse"],
    ],
    bad: ["production", "a=b,,c=d"],
    with: { OTEL_EXPORTER_OTLP_ENDPOINT: "http://localhost:4318" },
  },
}

describe.each(Object.entries(variables))("%s", (name, { good, bad, with: others }) => {
  it.effect("accepts valid values", function* () {
    for (const [value, field, expected] of good) {
      expect(field(yield* load({ ...others, [name]: value })), value).toEqual(expected)
    }
  })

  if (bad.length > 0) {
    it.effect("refuses an invalid value in one line: the variable, its fault, an example, and no secret", function* () {
      for (const value of bad) {
        const message = yield* refusal({ ...others, [name]: value })
        expect(message, value).not.toMatch(/[\r\n]/)
        expect(message, value).toMatch(new RegExp(`^${name} .*\\b${name}=\\S.*$`))
        if (/secret|password/.test(value)) expect(message).not.toMatch(/secret|password-/)
      }
    })
  }

  it.effect("treats an empty value as unset", function* () {
    const unset = yield* Effect.result(load({ ...others }))
    expect(yield* Effect.result(load({ ...others, [name]: "" }))).toEqual(unset)
  })
})

describe("defaults", () => {
  it.effect("open mode uses loopback, the embedded database and GitHub's issuer", function* () {
    expect(yield* load({})).toMatchObject({
      port: 3000,
      host: "127.0.0.1",
      baseUrl: "http://127.0.0.1:3000",
      isBaseUrlSet: false,
      dataDir: "./data",
      databaseUrl: undefined,
      adminTokens: undefined,
      encryptionKeys: undefined,
      oidcAudiences: ["http://127.0.0.1:3000"],
      allowedOwners: "any",
      githubIssuer: "https://token.actions.githubusercontent.com",
      defaultBranches: ["main", "master"],
      ciProviders: [{ provider: "github", issuer: "https://token.actions.githubusercontent.com" }],
      githubKeysUrl: "https://api.github.com/meta/public_keys/secret_scanning",
      allowPrivateNetworks: true,
      trustedProxies: 0,
      logLevel: "info",
    })
  })

  it.effect("guarded mode allows no repository owners and no private networks", function* () {
    const settings = yield* load({ ADMIN_TOKEN: token, HOST: "0.0.0.0", BASE_URL: "https://gatehouse.example" })
    expect(settings).toMatchObject({
      host: "0.0.0.0",
      allowedOwners: undefined,
      allowPrivateNetworks: false,
      oidcAudiences: ["https://gatehouse.example"],
    })
  })
})

describe("CONSOLE_OIDC_*", () => {
  it.effect("come together, and not in open mode", function* () {
    expect((yield* load({ ADMIN_TOKEN: token })).people).toBeUndefined()
    for (const name of Object.keys(signIn).filter((name) => name !== "ADMIN_TOKEN"))
      expect(yield* refusal(without(name))).toMatch(new RegExp(`^${name} is missing: `))
    expect(yield* refusal(without("ADMIN_TOKEN"))).toContain("CONSOLE_OIDC_ISSUER needs ADMIN_TOKEN")
  })
})

describe("OIDC_PROVIDERS", () => {
  it.effect("replaces GitHub's issuer, and stops the start when it is invalid or names another one", function* () {
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "gatehouse-providers-"))),
      (folder) => Effect.sync(() => rmSync(folder, { recursive: true })),
    )
    const OIDC_PROVIDERS = join(folder, "providers.json")
    writeFileSync(OIDC_PROVIDERS, JSON.stringify([{ preset: "gitlab" }]))
    const settings = yield* load({ OIDC_PROVIDERS })
    expect(settings.ciProviders).toMatchObject([{ provider: "gitlab", issuer: "https://gitlab.com" }])
    expect(settings.githubIssuer).toBeUndefined()
    const GITHUB_OIDC_ISSUER = "https://github.example/_services/token"
    expect(yield* refusal({ OIDC_PROVIDERS, GITHUB_OIDC_ISSUER })).toContain("different issuers for GitHub")
    writeFileSync(OIDC_PROVIDERS, JSON.stringify([{ preset: "github", issuer: GITHUB_OIDC_ISSUER }]))
    expect((yield* load({ OIDC_PROVIDERS, GITHUB_OIDC_ISSUER })).githubIssuer).toBe(GITHUB_OIDC_ISSUER)
    writeFileSync(OIDC_PROVIDERS, JSON.stringify([{ preset: "github" }, { preset: "circleci" }]))
    expect(yield* refusal({ OIDC_PROVIDERS })).toMatch(/^OIDC_PROVIDERS: entry 2: issuer is missing; for example /)
    expect(yield* refusal({ OIDC_PROVIDERS: join(folder, "none") })).toContain("cannot be read (ENOENT)")
  })
})

describe("misspelt variables", () => {
  it.effect.each([
    ["DATABASEURL", "DATABASE_URL"],
    ["database_url", "DATABASE_URL"],
    ["DATABASE_URI", "DATABASE_URL"],
    ["GATEHOUSE_DATABASE_URL", "DATABASE_URL"],
    ["ADMINTOKEN", "ADMIN_TOKEN"],
    ["ENCRYPTION_KEYS", "ENCRYPTION_KEY"],
    ["LIMIT_PROJECT", "LIMIT_PROJECTS"],
    ["WEBHOOK_RETRY_DELAY", "WEBHOOK_RETRY_DELAYS"],
    ["OTEL_EXPORTER_OTLP_ENPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"],
    ["port", "PORT"],
  ] as const)("%s is said to be a misspelt %s, while that is not set", ([name, meant]) =>
    Effect.gen(function* () {
      const sentence = `${name} is set, but Gatehouse does not read it. Did you mean ${meant}?`
      expect((yield* load({ [name]: "x" })).misspelt).toEqual([sentence])
      expect(yield* refusal({ [name]: "x", HOST: "0.0.0.0", METRICS_TOKEN: "short" })).toContain(sentence)
    }),
  )

  it.effect("variables of others, and one beside the right one, are no misspelt ones", function* () {
    const names = [
      ...["HOME", "NODE", "NODE_ENV", "PWD", "HTTP_PROXY", "NO_PROXY", "API_KEY", "LISTEN_PID", "POSTGRES_PASSWORD"],
      ...["GATEHOUSE_URL", "GATEHOUSE_TOKEN", "GATEHOUSE_PROFILE", "GATEHOUSE_WEBHOOK_SECRET", "GATEHOUSE_ID_TOKEN"],
      ...["GATEHOUSE_PORT", "GATEHOUSE_SERVICE_PORT", "GATEHOUSE_OUTBOX_DATABASE_URL", "NODE_EXTRA_CA_CERTS"],
    ]
    const others = Object.fromEntries(names.map((name) => [name, "x"]))
    expect((yield* load({ ...others, DATA_DIR: "memory", DATADIR: "x" })).misspelt).toEqual([])
  })
})

describe("variables that depend on each other", () => {
  it.effect("a HOST other than loopback requires ADMIN_TOKEN", function* () {
    const message = yield* refusal({ HOST: "0.0.0.0" })
    expect(message).toMatch(/^HOST is 0\.0\.0\.0\b.*ADMIN_TOKEN.*HOST=127\.0\.0\.1$/)
    expect(Exit.isSuccess(yield* Effect.exit(load({ HOST: "0.0.0.0", ADMIN_TOKEN: token })))).toBe(true)
  })

  it.effect("names the secrets that a file of variables has quoted or padded", function* () {
    const { quotedSecrets } = yield* load({
      ...signIn,
      ADMIN_TOKEN: `"${token}"`,
      METRICS_TOKEN: `${token}'`,
      AI_API_KEY: "sk-1\n",
      AI_BASE_URL: "https://ai.example.com/v1",
      AI_MODEL: "m",
      CONSOLE_OIDC_CLIENT_SECRET: `a"b c`,
    })
    expect(quotedSecrets).toEqual(["ADMIN_TOKEN", "METRICS_TOKEN", "AI_API_KEY"])
  })

  it.effect("DATABASE_URL requires ENCRYPTION_KEY", function* () {
    const message = yield* refusal({ DATABASE_URL: "postgres://u:hidden-password@localhost/db" })
    expect(message).toMatch(/^ENCRYPTION_KEY is required with DATABASE_URL; for example ENCRYPTION_KEY=\S+/)
    expect(message).not.toContain("hidden-password")
  })

  it.effect("LISTEN_URL requires DATABASE_URL", function* () {
    const message = yield* refusal({ LISTEN_URL: "postgres://u:hidden-password@localhost/db" })
    expect(message).toBe("LISTEN_URL needs DATABASE_URL: both are addresses of one database")
  })

  it.effect("AI_BASE_URL and AI_MODEL are set together, and AI_API_KEY only with them", function* () {
    const url = { AI_BASE_URL: "http://localhost:11434/v1" }
    for (const [environment, missing] of [
      [url, "AI_MODEL"],
      [{ AI_MODEL: "some-model" }, "AI_BASE_URL"],
      [{ AI_API_KEY: "hidden-key" }, "AI_BASE_URL"],
      [{ ...url, AI_API_KEY: "hidden-key" }, "AI_MODEL"],
    ] as const) {
      const message = yield* refusal(environment)
      expect(message).toMatch(new RegExp(`^${missing} is missing: .*for example ${missing}=\\S+$`))
      expect(message).not.toContain("hidden-key")
    }
    expect((yield* load({})).ai).toBeUndefined()
  })

  it.effect("printed settings hide secrets", function* () {
    const secrets = {
      ADMIN_TOKEN: `${token},${token}2`,
      METRICS_TOKEN: token,
      ENCRYPTION_KEY: key,
      DATABASE_URL: `postgres://u:${token}@h/d`,
      LISTEN_URL: `postgres://u:${token}@h/d`,
      AI_BASE_URL: "http://localhost:11434/v1",
      AI_MODEL: "some-model",
      AI_API_KEY: token,
    }
    const settings = yield* load(secrets)
    expect(JSON.stringify(settings)).not.toContain(token)
    expect(String(settings.encryptionKeys)).not.toMatch(/\d/)
  })
})

/** Starts the service as a process that must end by itself, or by a signal once it listens. */
const run = (environment: Environment, signal?: NodeJS.Signals) =>
  Effect.callback<{ code: number | null; output: string }>((resume) => {
    const env = {
      PATH: process.env["PATH"],
      DATA_DIR: "memory",
      LOG_LEVEL: "error",
      ADMIN_TOKEN: token,
      ...environment,
    }
    const child = spawn(process.execPath, ["src/main.ts"], { env })
    let output = ""
    child.stdout.on("data", (chunk: Buffer) => {
      const listened = output.includes("listens on")
      output += chunk.toString()
      if (signal !== undefined && !listened && output.includes("listens on")) child.kill(signal)
    })
    child.stderr.on("data", (chunk: Buffer) => (output += chunk.toString()))
    child.on("close", (code) => resume(Effect.succeed({ code, output })))
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

describe("a process that cannot start gives the reason in one line and ends with status 1", () => {
  it.live("an invalid variable", function* () {
    const output = "gatehouse: PORT must be a whole number from 0 to 65535; for example PORT=3000\n"
    expect(yield* run({ PORT: "http" })).toEqual({ code: 1, output })
  })

  // Node's recursive mkdir never returns here: seen hanging with it.
  it.live("a folder that cannot be created", function* () {
    const { code, output } = yield* run({ DATA_DIR: "/proc/gatehouse" })
    expect(output).toMatch(
      /^gatehouse: DATA_DIR \/proc\/gatehouse cannot be written \(E[A-Z]+\); .* for example DATA_DIR=\.\/data\n$/,
    )
    expect(code).toBe(1)
  })

  it.live("a port in use", function* () {
    const taken = yield* Effect.acquireRelease(
      Effect.callback<Server>((resume) => {
        const server = createServer().listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) => Effect.sync(() => server.close()),
    )
    const { port } = taken.address() as AddressInfo
    const { code, output } = yield* run({ PORT: String(port) })
    expect(output).toBe(
      `gatehouse: Cannot listen on 127.0.0.1:${port}: the port is in use. Stop the other process or set PORT\n`,
    )
    expect(code).toBe(1)
  })
})

// Seen failing without the lines of the stop, and with the start as one string.
it.live.each(["SIGTERM", "SIGINT"] as const)(
  "with JSON logs, a start and a stop by %s are lines with fields",
  function* (signal) {
    const { code, output } = yield* run({ LOG_LEVEL: "info", LOG_FORMAT: "json", PORT: "0" }, signal)
    expect(code).toBe(0)
    const lines = output
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { readonly level: string; readonly message: string; readonly url?: string })
    const [listens, baseUrl, owners, stops, stopped, ...more] = lines.filter(
      ({ message }) => !message.startsWith("Migration "),
    )
    const { url } = listens!
    expect(listens).toMatchObject({
      message: `Gatehouse listens on ${url}`,
      mode: "guarded",
      database: "embedded",
      dataDir: "memory",
      docs: `${url}/docs`,
    })
    for (const unset of [baseUrl, owners]) expect(unset).toMatchObject({ level: "WARN" })
    expect(stops).toMatchObject({ level: "INFO", message: expect.stringMatching(/^Gatehouse stops: /) })
    expect(stopped).toMatchObject({
      level: "INFO",
      message: expect.stringMatching(/^Gatehouse has stopped, in \d+\.\d s$/),
    })
    expect(more).toEqual([])
  },
)
