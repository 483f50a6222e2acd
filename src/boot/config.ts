import { Config, Duration, Effect, Option, Redacted, Result } from "effect"
import type { LogLevel } from "effect/LogLevel"
import { limitNames, limits, type LimitValues } from "../domain/orgs/OrgLimits.ts"
import { StartupError } from "../infrastructure/StartupError.ts"

// Values are read by functions of our own: Effect's Config has other spellings (its Port refuses 0, its Duration 5s, its
// ByteSize a plain number; it takes 3e3, yes and 1.5GiB), and what it says of a value is more than one line.
type Parse<A> = (text: string) => Result.Result<A, string>

/** Reads one variable; unset or empty is `None`. A wrong value is one line: the variable, its fault and an example. */
const read = <A>(name: string, example: string, parse: Parse<A>) =>
  Config.option(Config.String(name)).pipe(
    Effect.orDie,
    Effect.flatMap((text) => {
      if (Option.isNone(text) || text.value === "") return Effect.succeed(undefined)
      return Result.match(parse(text.value), {
        onSuccess: (value) => Effect.succeed(value as A | undefined),
        onFailure: (fault) =>
          Effect.fail(new StartupError({ message: `${name} ${fault}; for example ${name}=${example}` })),
      })
    }),
  )

const text: Parse<string> = Result.succeed
const secret: Parse<Redacted.Redacted<string>> = (value) => Result.succeed(Redacted.make(value))

const integer =
  (minimum: number, maximum: number): Parse<number> =>
  (value) =>
    /^\d{1,9}$/.test(value) && Number(value) >= minimum && Number(value) <= maximum
      ? Result.succeed(Number(value))
      : Result.fail(`must be a whole number from ${minimum} to ${maximum}`)

const byteUnits = { "": 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 } as const
/** A number of bytes, up to 1000 TiB. */
const bytes: Parse<number> = (value) => {
  const [, amount, unit = ""] = /^(\d{1,15})(KiB|MiB|GiB|TiB)?$/.exec(value) ?? []
  const parsed = Number(amount) * byteUnits[unit as keyof typeof byteUnits]
  return parsed <= 1000 * byteUnits.TiB
    ? Result.succeed(parsed)
    : Result.fail("must be a number of bytes up to 1000TiB, alone or with KiB, MiB, GiB or TiB")
}

/** Days, or `off` for no end. */
const days: Parse<number | "off"> = (value) =>
  value.toLowerCase() === "off"
    ? Result.succeed("off")
    : Result.mapError(integer(1, 36_500)(value), () => "must be a whole number of days from 1 to 36500, or off")

const httpUrl: Parse<string> = (value) =>
  URL.canParse(value) && /^https?:$/.test(new URL(value).protocol)
    ? Result.succeed(value.replace(/\/+$/, ""))
    : Result.fail("must be an http or https URL")

const oneOf =
  <const A extends string>(...values: ReadonlyArray<A>): Parse<A> =>
  (value) =>
    values.includes(value.toLowerCase() as A)
      ? Result.succeed(value.toLowerCase() as A)
      : Result.fail(`must be one of ${values.join(", ")}`)

const indexMemory: Parse<number> = (value) =>
  Result.flatMap(bytes(value), (parsed) =>
    parsed >= 16 * byteUnits.MiB ? Result.succeed(parsed) : Result.fail("must be at least 16MiB"),
  )

const boolean: Parse<boolean> = (value) => Result.map(oneOf("true", "false")(value), (word) => word === "true")

const list =
  <A>(item: Parse<A>): Parse<ReadonlyArray<A>> =>
  (value) => {
    const parts = value.split(",").map((part) => part.trim())
    return parts.includes("") ? Result.fail("must not have an empty entry") : Result.all(parts.map(item))
  }

const token: Parse<Redacted.Redacted<string>> = (value) =>
  value.length >= 16 && !/\s/.test(value)
    ? secret(value)
    : Result.fail("must be at least 16 characters without white space")

/** Spaces may follow a comma; other white space is none of a token's. */
const tokens: Parse<ReadonlyArray<Redacted.Redacted<string>>> = (value) =>
  Result.mapError(
    Result.all(value.split(/, */).map(token)),
    (fault) => `${fault} (several, separated by commas: each of them)`,
  )

const owner: Parse<string> = (value) =>
  /^(\*|[A-Za-z0-9_.-]{1,100})$/.test(value)
    ? Result.succeed(value)
    : Result.fail("must be owners' names, separated by commas, or *")

/** Keys that decide who gets in come over https, or from this machine. */
const issuerUrl: Parse<string> = (value) =>
  Result.flatMap(httpUrl(value), () =>
    value.startsWith("https:") || isLoopback(new URL(value).hostname.replace(/^\[|\]$/g, ""))
      ? Result.succeed(value)
      : Result.fail("must be an https URL"),
  )

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const duration: Parse<Duration.Duration> = (value) => {
  const [, amount, unit] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(value) ?? []
  return amount === undefined
    ? Result.fail("must be a number with a unit: ms, s, m, h or d")
    : Result.succeed(Duration.millis(Number(amount) * units[unit as keyof typeof units]))
}

const timeout: Parse<Duration.Duration> = (value) =>
  Result.flatMap(duration(value), (parsed) =>
    Duration.toMillis(parsed) >= 100 ? Result.succeed(parsed) : Result.fail("must be at least 100ms"),
  )

const encryptionKey: Parse<Redacted.Redacted<Uint8Array>> = (value) => {
  const bytes = Buffer.from(value, "base64")
  return bytes.length === 32 && /^[A-Za-z0-9+/]{43}=$/.test(value)
    ? Result.succeed(Redacted.make(new Uint8Array(bytes)))
    : Result.fail("must be 32 bytes in base64 (several: the one in use first, separated by commas)")
}

const postgresUrl: Parse<Redacted.Redacted<string>> = (value) =>
  /^postgres(ql)?:\/\/./.test(value) && URL.canParse(value)
    ? Result.succeed(Redacted.make(value))
    : Result.fail("must be a PostgreSQL URL")

const isLoopback = (host: string) => host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host)

/** GitHub's own, which is asked for its keys unless GITHUB_OIDC_ISSUER names another. */
export const defaultIssuer = "https://token.actions.githubusercontent.com"

const limitValues = Effect.forEach(limitNames, (name) => {
  const { variable, defaultValue } = limits[name]
  const value =
    name === "storedBytes" ? read(variable, "10GiB", bytes) : read(variable, `${defaultValue}`, integer(0, 999_999_999))
  return Effect.map(value, (value) => [name, value ?? defaultValue] as const)
}).pipe(Effect.map((entries) => Object.fromEntries(entries) as LimitValues))

/** Everything that the environment says, checked. Fails with a `StartupError` of one line that prints no secret. */
export const load = Effect.gen(function* () {
  const port = (yield* read("PORT", "3000", integer(0, 65_535))) ?? 3000
  const host = (yield* read("HOST", "127.0.0.1", text)) ?? "127.0.0.1"
  const adminTokens = yield* read("ADMIN_TOKEN", "$(openssl rand -hex 32)", tokens)
  if (adminTokens === undefined && !isLoopback(host)) {
    return yield* new StartupError({
      message: `HOST is ${host}, and without ADMIN_TOKEN anyone who reaches the server may manage it; set ADMIN_TOKEN, or HOST=127.0.0.1`,
    })
  }
  const urlHost = host.includes(":") ? `[${host}]` : host
  const givenBaseUrl = yield* read("BASE_URL", "https://gatehouse.example.com", httpUrl)
  const baseUrl = givenBaseUrl ?? `http://${urlHost}:${port}`

  const databaseUrl = yield* read("DATABASE_URL", "postgres://user:password@localhost:5432/gatehouse", postgresUrl)
  const encryptionKeys = yield* read("ENCRYPTION_KEY", "$(openssl rand -base64 32)", list(encryptionKey))
  if (databaseUrl !== undefined && encryptionKeys === undefined) {
    return yield* new StartupError({
      message: "ENCRYPTION_KEY is required with DATABASE_URL; for example ENCRYPTION_KEY=$(openssl rand -base64 32)",
    })
  }

  const aiBaseUrl = yield* read("AI_BASE_URL", "https://api.openai.com/v1", httpUrl)
  const aiModel = yield* read("AI_MODEL", "gpt-5-mini", text)
  const aiApiKey = yield* read("AI_API_KEY", "sk-…", secret)
  if ((aiBaseUrl === undefined) !== (aiModel === undefined) || (aiApiKey !== undefined && aiBaseUrl === undefined)) {
    const [missing, example] =
      aiBaseUrl === undefined ? ["AI_BASE_URL", "https://api.openai.com/v1"] : ["AI_MODEL", "gpt-5-mini"]
    return yield* new StartupError({
      message: `${missing} is missing: AI_BASE_URL and AI_MODEL are set together (AI_API_KEY where the server wants one); for example ${missing}=${example}`,
    })
  }

  const retention = (yield* read("RETENTION_DAYS", "90", days)) ?? 90
  const owners = yield* read("OIDC_ALLOWED_OWNERS", "acme,octocat", list(owner))
  const allowedOwners = owners ?? (adminTokens === undefined ? ["*"] : undefined)

  return {
    port,
    host,
    baseUrl,
    isBaseUrlSet: givenBaseUrl !== undefined,
    /** `undefined`: open mode. */
    adminTokens,
    databaseUrl,
    dataDir: (yield* read("DATA_DIR", "./data", text)) ?? "./data",
    encryptionKeys,
    oidcAudiences: (yield* read("OIDC_AUDIENCE", baseUrl, list(text))) ?? [baseUrl],
    /** `undefined`: guarded mode, and nothing was said. */
    allowedOwners: allowedOwners?.includes("*") ? ("any" as const) : allowedOwners,
    githubIssuer:
      (yield* read("GITHUB_OIDC_ISSUER", "https://github.example.com/_services/token", issuerUrl)) ?? defaultIssuer,
    allowPrivateNetworks: (yield* read("ALLOW_PRIVATE_NETWORKS", "true", boolean)) ?? adminTokens === undefined,
    trustedProxies: (yield* read("TRUST_PROXY", "1", integer(0, 10))) ?? 0,
    /** `undefined`: as many as the memory allows. */
    keyCacheSize: yield* read("KEY_CACHE_SIZE", "100000", integer(0, 10_000_000)),
    /** In bytes; `undefined`: as much as the memory allows. */
    chatIndexMemory: yield* read("CHAT_INDEX_MEMORY", "80MiB", indexMemory),
    webhookRetryDelays: yield* read("WEBHOOK_RETRY_DELAYS", "5s,5m,30m,2h", list(duration)),
    webhookTimeout: (yield* read("WEBHOOK_TIMEOUT", "15s", timeout)) ?? Duration.seconds(15),
    endpointConcurrency: (yield* read("WEBHOOK_ENDPOINT_CONCURRENCY", "10", integer(1, 1_000))) ?? 10,
    /** `undefined`: events are kept for good. */
    retentionDays: retention === "off" ? undefined : retention,
    /** The limits of an org that has none of its own. */
    limits: yield* limitValues,
    /** `undefined`: no language model is configured. */
    ai:
      aiBaseUrl === undefined || aiModel === undefined
        ? undefined
        : { baseUrl: aiBaseUrl, model: aiModel, apiKey: aiApiKey },
    /** `undefined`: guarded mode shows the metrics to this machine and the administrator only. */
    metricsToken: yield* read("METRICS_TOKEN", "$(openssl rand -hex 32)", token),
    logLevel: ((yield* read("LOG_LEVEL", "info", oneOf("trace", "debug", "info", "warn", "error", "fatal", "none"))) ??
      "info") satisfies Lowercase<LogLevel>,
    logFormat:
      (yield* read("LOG_FORMAT", "json", oneOf("pretty", "json"))) ?? (process.stdout.isTTY ? "pretty" : "json"),
    otlpEndpoint: yield* read("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318", httpUrl),
  }
})

/** The service's configuration: one value for each variable of the README's table. */
export type Settings = Effect.Success<typeof load>
