import { Config, ConfigProvider, Duration, Effect, Option, Redacted, Result } from "effect"
import type { LogLevel } from "effect/LogLevel"
import { readFileSync } from "node:fs"
import { extname } from "node:path"
import { parseOwner, type RepositoryOwner } from "../domain/RepositoryOwner.ts"
import { presetOf } from "../domain/deployments/providers/knownProviders.ts"
import { maxRetentionDays } from "../domain/orgs/Org.ts"
import { defaultAuditRetentionDays, defaultRetentionDays } from "../domain/Retention.ts"
import { limitNames, limits, type LimitValues } from "../domain/orgs/OrgLimits.ts"
import { type Role, type RoleRule, rolesOfAll, rolesOfOrg } from "../domain/Person.ts"
import { contrastWithWhite, minContrast } from "../domain/sessions/contrast.ts"
import { likelyNames, nearestName } from "../http/server/nearestName.ts"
import type { PortalLogo } from "../http/server/portalLook.ts"
import { StartupError } from "../infrastructure/StartupError.ts"
import { parseDatabaseUrl } from "../infrastructure/database/DatabaseUrl.ts"
import { defaultKeysUrl } from "../infrastructure/keys/GithubSignatures.ts"
import { type EgressProxy, egressProxyOf } from "../infrastructure/net/EgressProxy.ts"
import { defaultOptions as attempts } from "../infrastructure/webhooks/DeliveryWorker.ts"
import { parseProviders, readProviders } from "./ciProviders.ts"
import { type VariableName, variables } from "./variables.ts"

/** A variable with its example, for messages. */
const exampleOf = (name: VariableName) => `for example ${name}=${variables[name]!.example}`

/**
 * Reads one variable; `undefined` if it is unset or empty. Fails with a one-line `StartupError`: the variable, what is
 * wrong and an example. The line never contains the value, which may be a secret.
 */
const read = <A>(name: VariableName, parse: Parse<A>) =>
  Config.option(Config.String(name)).pipe(
    Effect.orDie,
    Effect.flatMap((text) => {
      if (Option.isNone(text) || text.value === "") return Effect.succeed(undefined)
      return Result.match(parse(text.value), {
        onSuccess: (value) => Effect.succeed(value as A | undefined),
        onFailure: (fault) => Effect.fail(new StartupError({ message: `${name} ${fault}; ${exampleOf(name)}` })),
      })
    }),
  )

/** GitHub's issuer of OIDC tokens; GITHUB_OIDC_ISSUER names another one. */
export const defaultIssuer = presetOf("github").issuer!

/** The CI providers: those of the file OIDC_PROVIDERS, else GitHub. */
const loadProviders = Effect.fnUntraced(function* (audiences: ReadonlyArray<string>) {
  const githubIssuer = yield* read("GITHUB_OIDC_ISSUER", issuerUrl)
  const path = yield* read("OIDC_PROVIDERS", text)
  if (path === undefined) {
    const issuer = githubIssuer ?? defaultIssuer
    const ciProviders = Result.getOrThrow(parseProviders(JSON.stringify([{ preset: "github", issuer }]), audiences))
    return { githubIssuer: issuer, ciProviders, hasProvidersFile: false }
  }
  const ciProviders = readProviders(path, audiences)
  if (Result.isFailure(ciProviders)) {
    return yield* new StartupError({ message: `OIDC_PROVIDERS: ${ciProviders.failure}; see docs/ci.md for examples` })
  }
  const ofFile = ciProviders.success.find(({ provider }) => provider === "github")?.issuer
  if (githubIssuer !== undefined && githubIssuer !== ofFile) {
    return yield* new StartupError({
      message:
        "GITHUB_OIDC_ISSUER and OIDC_PROVIDERS are both set and name different issuers for GitHub: unset GITHUB_OIDC_ISSUER, or set issuer of the file's github entry to it",
    })
  }
  return { githubIssuer: ofFile, ciProviders: ciProviders.success, hasProvidersFile: true }
})

const loadLimits = Effect.forEach(limitNames, (name) => {
  const { variable, defaultValue } = limits[name]
  const value = name === "storedBytes" ? read(variable, bytes) : read(variable, integer(0, 999_999_999))
  return Effect.map(value, (value) => [name, value ?? defaultValue] as const)
}).pipe(Effect.map((entries) => Object.fromEntries(entries) as LimitValues))

/** The host as it is written in a URL: an IPv6 address gets brackets. */
export const urlHost = (host: string) => (host.includes(":") ? `[${host}]` : host)

const loadServer = Effect.gen(function* () {
  const port = (yield* read("PORT", integer(0, 65_535))) ?? 3000
  const host = (yield* read("HOST", text)) ?? "127.0.0.1"
  const adminTokens = yield* read("ADMIN_TOKEN", tokens)
  if (adminTokens === undefined && !isLoopback(host)) {
    return yield* new StartupError({
      message: `HOST is ${host}, but ADMIN_TOKEN is not set: anyone who reaches the server could manage it. Set ADMIN_TOKEN, or HOST=127.0.0.1`,
    })
  }
  const baseUrl = yield* read("BASE_URL", httpUrl)
  return {
    port,
    host,
    /** `undefined`: open mode. */
    adminTokens,
    baseUrl: baseUrl ?? `http://${urlHost(host)}:${port}`,
    isBaseUrlSet: baseUrl !== undefined,
  }
})

const loadDatabase = Effect.gen(function* () {
  const databaseUrl = yield* read("DATABASE_URL", postgresUrl)
  const listenUrl = yield* read("LISTEN_URL", postgresUrl)
  if (listenUrl !== undefined && databaseUrl === undefined) {
    return yield* new StartupError({ message: "LISTEN_URL needs DATABASE_URL: both are addresses of one database" })
  }
  const nodes = yield* read("NODES", nodeUrls)
  if (nodes !== undefined && databaseUrl === undefined) {
    return yield* new StartupError({ message: "NODES needs DATABASE_URL: the database that has the orgs and keys" })
  }
  const encryptionKeys = yield* read("ENCRYPTION_KEY", list(encryptionKey))
  if (databaseUrl !== undefined && encryptionKeys === undefined) {
    return yield* new StartupError({
      message: `ENCRYPTION_KEY is required with DATABASE_URL; ${exampleOf("ENCRYPTION_KEY")}`,
    })
  }
  return {
    databaseUrl,
    listenUrl,
    /** Other PostgreSQL databases, by name: each has the rows of some orgs. */
    nodes: nodes ?? new Map<string, Redacted.Redacted<string>>(),
    encryptionKeys,
    dataDir: (yield* read("DATA_DIR", text)) ?? "./data",
  }
})

/** The language model; `undefined`: none is configured. */
const loadAi = Effect.gen(function* () {
  const baseUrl = yield* read("AI_BASE_URL", httpUrl)
  const model = yield* read("AI_MODEL", text)
  const apiKey = yield* read("AI_API_KEY", secret)
  if (baseUrl !== undefined && model !== undefined) return { baseUrl, model, apiKey }
  if (baseUrl === undefined && model === undefined && apiKey === undefined) return undefined
  const missing = baseUrl === undefined ? "AI_BASE_URL" : "AI_MODEL"
  return yield* new StartupError({
    message: `${missing} is missing: set AI_BASE_URL and AI_MODEL together, and AI_API_KEY if the server needs one; ${exampleOf(missing)}`,
  })
})

const loadWebhooks = Effect.gen(function* () {
  const retentionDays = (yield* read("RETENTION_DAYS", days)) ?? defaultRetentionDays
  const auditRetentionDays = (yield* read("AUDIT_RETENTION_DAYS", days)) ?? defaultAuditRetentionDays
  return {
    webhookRetryDelays: yield* read("WEBHOOK_RETRY_DELAYS", list(duration)),
    webhookTimeout: (yield* read("WEBHOOK_TIMEOUT", timeout)) ?? attempts.attemptTimeout,
    endpointConcurrency: (yield* read("WEBHOOK_ENDPOINT_CONCURRENCY", integer(1, 1_000))) ?? attempts.laneCap,
    /** `undefined`: nothing is removed. */
    retentionDays: retentionDays === "off" ? undefined : retentionDays,
    /** `undefined`: nothing is removed. */
    auditRetentionDays: auditRetentionDays === "off" ? undefined : auditRetentionDays,
  }
})

const loadLogs = Effect.gen(function* () {
  const logLevels = oneOf("trace", "debug", "info", "warn", "error", "fatal", "none")
  return {
    logLevel: ((yield* read("LOG_LEVEL", logLevels)) ?? "info") satisfies Lowercase<LogLevel>,
    logFormat: (yield* read("LOG_FORMAT", oneOf("pretty", "json"))) ?? (process.stdout.isTTY ? "pretty" : "json"),
    /** `undefined`: nothing is exported. */
    otlp: yield* loadOtlp,
  }
})

const loadOtlp = Effect.gen(function* () {
  const endpoint = yield* read("OTEL_EXPORTER_OTLP_ENDPOINT", httpUrl)
  const headers = yield* read("OTEL_EXPORTER_OTLP_HEADERS", headerPairs)
  const name = yield* read("OTEL_SERVICE_NAME", text)
  const attributes = (yield* read("OTEL_RESOURCE_ATTRIBUTES", pairs)) ?? {}
  const serviceName = name ?? attributes["service.name"] ?? "gatehouse"
  return endpoint === undefined ? undefined : { endpoint, headers, serviceName, attributes }
})

/** How the portal looks to tenants. */
const loadPortal = Effect.gen(function* () {
  return {
    name: yield* read("PORTAL_NAME", line(60)),
    logo: yield* read("PORTAL_LOGO", logo),
    color: yield* read("PORTAL_COLOR", color),
    text: yield* read("PORTAL_TEXT", line(300)),
    helpUrl: yield* read("PORTAL_HELP_URL", httpUrl),
    /** The origins whose pages may show the portal in a frame; `undefined`: none. */
    origins: yield* read("PORTAL_ORIGINS", list(frameOrigin)),
  }
})

/** How people sign in to the console; `undefined`: with a token or key alone. */
const loadPeople = Effect.fnUntraced(function* (isOpen: boolean) {
  const issuer = yield* read("CONSOLE_OIDC_ISSUER", issuerUrl)
  const clientId = yield* read("CONSOLE_OIDC_CLIENT_ID", line(255))
  const clientSecret = yield* read("CONSOLE_OIDC_CLIENT_SECRET", secret)
  const rules = yield* read("CONSOLE_OIDC_ROLES", roleRules)
  const all = {
    CONSOLE_OIDC_ISSUER: issuer,
    CONSOLE_OIDC_CLIENT_ID: clientId,
    CONSOLE_OIDC_CLIENT_SECRET: clientSecret,
    CONSOLE_OIDC_ROLES: rules,
  }
  if (Object.values(all).every((value) => value === undefined)) return undefined
  if (isOpen) {
    return yield* new StartupError({
      message: "CONSOLE_OIDC_ISSUER needs ADMIN_TOKEN: in open mode nobody signs in, and anyone manages every org",
    })
  }
  if (issuer !== undefined && clientId !== undefined && clientSecret !== undefined && rules !== undefined) {
    return { issuer, clientId, clientSecret, rules }
  }
  const missing = (Object.keys(all) as Array<keyof typeof all>).find((name) => all[name] === undefined)!
  return yield* new StartupError({
    message: `${missing} is missing: set all four of CONSOLE_OIDC_*; ${exampleOf(missing)}`,
  })
})

/** The variables with secrets in a form of their own choice: nothing refuses a quotation mark or a space in them. */
const freeSecrets = ["ADMIN_TOKEN", "METRICS_TOKEN", "AI_API_KEY", "CONSOLE_OIDC_CLIENT_SECRET"]

/** Of these, the ones with a value that a file of variables has quoted or padded: env files of some tools keep both. */
const quotedSecrets = Effect.filter(freeSecrets, (name) =>
  Effect.map(Effect.orDie(Config.option(Config.String(name))), (value) =>
    Option.exists(value, (text) => /^["'\s]|["'\s]$/.test(text)),
  ),
)

/** The names of all variables that are set, below a path of their parts. */
const namesBelow = (
  provider: ConfigProvider.ConfigProvider,
  path: ReadonlyArray<string> = [],
): Effect.Effect<ReadonlyArray<string>> =>
  Effect.gen(function* () {
    const node = yield* Effect.orDie(provider.load(path))
    const own = node?.value === undefined ? [] : [path.join("_")]
    if (node?._tag !== "Record") return own
    const below = yield* Effect.forEach(node.keys, (key) => namesBelow(provider, [...path, key]))
    return [...own, ...below.flat()]
  })

/** A sentence for each variable that nothing reads and that is written almost like one that is not set. */
const misspeltVariables = Effect.gen(function* () {
  const set = yield* namesBelow(yield* ConfigProvider.ConfigProvider)
  const unset = Object.keys(variables).filter((name) => !set.includes(name))
  return set.flatMap((name) => {
    if (name in variables) return []
    // Kubernetes sets GATEHOUSE_PORT for a service of that name.
    const bare = name.replace(/^GATEHOUSE_(?!PORT$)/, "")
    const nearest = nearestName(bare, likelyNames(bare, unset))
    // Short names have too many neighbours: HOME is no HOST.
    if (nearest === undefined || nearest.slips * 6 > nearest.name.length) return []
    return [`${name} is set, but Gatehouse does not read it. Did you mean ${nearest.name}?`]
  })
})

/** Reads and checks the whole configuration. Fails with a one-line `StartupError` that contains no secret. */
export const load = Effect.gen(function* () {
  const misspelt = yield* misspeltVariables
  const settings = yield* Effect.mapError(
    loadAll,
    ({ message }) => new StartupError({ message: [message, ...misspelt].join(". ") }),
  )
  return { ...settings, misspelt }
})

const loadAll = Effect.gen(function* () {
  const server = yield* loadServer
  const isOpen = server.adminTokens === undefined
  const database = yield* loadDatabase
  const ai = yield* loadAi
  const aiUnverified = (yield* read("AI_UNVERIFIED", oneOf("mark", "omit"))) ?? "mark"
  const webhooks = yield* loadWebhooks
  const owners = yield* read("OIDC_ALLOWED_OWNERS", list(owner))
  const allowedOwners = owners ?? (isOpen ? ["*" as const] : undefined)
  const oidcAudiences = (yield* read("OIDC_AUDIENCE", list(text))) ?? [server.baseUrl]
  return {
    ...server,
    ...database,
    ...webhooks,
    ai,
    aiUnverified,
    oidcAudiences,
    /** `undefined`: guarded mode without OIDC_ALLOWED_OWNERS. */
    allowedOwners: allowedOwners?.includes("*")
      ? ("any" as const)
      : (allowedOwners as ReadonlyArray<RepositoryOwner> | undefined),
    /** The branches that become a default branch when somebody pushes to them. */
    defaultBranches: (yield* read("OIDC_DEFAULT_BRANCHES", list(branch))) ?? ["main", "master"],
    ...(yield* loadProviders(oidcAudiences)),
    /** Where the keys of GitHub's secret scanning are read. */
    githubKeysUrl: (yield* read("GITHUB_SECRET_SCANNING_KEYS_URL", issuerUrl)) ?? defaultKeysUrl,
    allowPrivateNetworks: (yield* read("ALLOW_PRIVATE_NETWORKS", boolean)) ?? isOpen,
    /** `undefined`: requests to tenants' URLs go directly. */
    egressProxy: yield* read("EGRESS_PROXY", egressProxy),
    trustedProxies: (yield* read("TRUST_PROXY", integer(0, 10))) ?? 0,
    /** Number of keys; `undefined`: derived from the memory limit. */
    keyCacheSize: yield* read("KEY_CACHE_SIZE", integer(0, 10_000_000)),
    /** Bytes; `undefined`: derived from the memory limit. */
    chatIndexMemory: yield* read("CHAT_INDEX_MEMORY", indexMemory),
    portal: yield* loadPortal,
    people: yield* loadPeople(isOpen),
    /** The limits of an org that has none of its own. */
    limits: yield* loadLimits,
    /** `undefined`: in guarded mode only this machine and the administrator read the metrics. */
    metricsToken: yield* read("METRICS_TOKEN", token),
    /** The names of secrets whose value begins or ends with a quotation mark or white space. */
    quotedSecrets: yield* quotedSecrets,
    ...(yield* loadLogs),
  }
})

/** The service's configuration. */
export type Settings = Effect.Success<typeof load>

// Effect's Config parsers accept other spellings (Port refuses 0, Duration refuses 5s, ByteSize refuses a plain number;
// 3e3, yes and 1.5GiB are accepted), and their errors take more than one line.
type Parse<A> = (text: string) => Result.Result<A, string>

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
    : Result.fail("must be a number of bytes up to 1000TiB, with or without the unit KiB, MiB, GiB or TiB")
}

/** A number of days, or `off`. */
const days: Parse<number | "off"> = (value) =>
  value.toLowerCase() === "off"
    ? Result.succeed("off")
    : Result.mapError(
        integer(1, maxRetentionDays)(value),
        () => `must be a whole number of days from 1 to ${maxRetentionDays}, or off`,
      )

const httpUrl: Parse<string> = (value) =>
  URL.canParse(value) && /^https?:$/.test(new URL(value).protocol) && new URL(value).port !== "0"
    ? Result.succeed(value.replace(/(?<!\/)\/+$/, ""))
    : Result.fail("must be an http or https URL, and its port not 0")

/** The origin of a page: of another scheme than https only on this machine, because others could change the page. */
const frameOrigin: Parse<string> = (value) => {
  const url = URL.canParse(value) ? new URL(value) : undefined
  const isLocal = url !== undefined && ["localhost", "127.0.0.1", "[::1]"].includes(url.hostname)
  return url !== undefined &&
    url.origin === value &&
    (url.protocol === "https:" || (isLocal && url.protocol === "http:"))
    ? Result.succeed(value)
    : Result.fail("must be origins: https://, a host and at most a port, without a path or a final slash")
}

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

/** A text on one line, for people. */
const line =
  (maxLength: number): Parse<string> =>
  (value) =>
    value.trim().length <= maxLength && /^\P{Cc}+$/u.test(value.trim())
      ? Result.succeed(value.trim())
      : Result.fail(`must be one line of at most ${maxLength} characters`)

/** The largest file of a logo. */
const maxLogoBytes = 102_400

/** A file with a picture, which the service itself serves: pages load nothing from other servers. */
const logo: Parse<PortalLogo> = (value) => {
  const extension = extname(value).toLowerCase()
  if (extension !== ".svg" && extension !== ".png") return Result.fail("must be the path of an .svg or .png file")
  return Result.flatMap(
    Result.try({ try: () => readFileSync(value), catch: () => "names a file that cannot be read" }),
    (content) => {
      const isPicture =
        extension === ".png" ? content.subarray(1, 4).toString() === "PNG" : content.toString().includes("<svg")
      if (!isPicture) return Result.fail(`names a file that is no ${extension.slice(1).toUpperCase()} picture`)
      return content.length <= maxLogoBytes
        ? Result.succeed({ extension, content })
        : Result.fail("names a file of more than 100 KiB")
    },
  )
}

/** A color for buttons with white text. */
const color: Parse<string> = (value) => {
  if (!/^#[0-9a-f]{6}$/i.test(value)) return Result.fail("must be a color as # and six hexadecimal digits")
  const contrast = contrastWithWhite(value)
  return contrast >= minContrast
    ? Result.succeed(value.toLowerCase())
    : Result.fail(
        `has a contrast of ${contrast.toFixed(1)} with the white text of buttons; choose a darker color, with ${minContrast} or more`,
      )
}

const roleFault =
  "must be JSON of claims, their values and roles: administrator, operator or viewer of all orgs; owner:<orgId>, developer:<orgId> or viewer:<orgId>"

/** A role as it is written: `operator`, or `developer:<orgId>`. */
const roleOf = (text: unknown) => {
  const [, role = "", orgId = ""] =
    (typeof text === "string" && /^([a-z]+)(?::([0-7][0-9A-HJKMNP-TV-Z]{25}))?$/.exec(text)) || []
  const isKnown = (orgId === "" ? rolesOfAll : rolesOfOrg).includes(role as Role)
  return isKnown ? { role: role as Role, orgId } : undefined
}

/** Claims, their values, and the role or roles of each. */
const roleRules: Parse<ReadonlyArray<RoleRule>> = (value) => {
  const entriesOf = (object: unknown) =>
    typeof object === "object" && object !== null && !Array.isArray(object) ? Object.entries(object) : [["", undefined]]
  return Result.flatMap(Result.try({ try: () => JSON.parse(value) as unknown, catch: () => roleFault }), (claims) => {
    const rules = entriesOf(claims).flatMap(([claim, values]) =>
      entriesOf(values).flatMap(([value, roles]) =>
        [roles].flat().map((role) => ({ claim, value, ...roleOf(role) }) as RoleRule),
      ),
    )
    const isWrong = rules.length === 0 || rules.some(({ claim, role }) => claim === "" || role === undefined)
    return isWrong ? Result.fail(roleFault) : Result.succeed(rules)
  })
}

const boolean: Parse<boolean> = (value) => Result.map(oneOf("true", "false")(value), (word) => word === "true")

const list =
  <A>(item: Parse<A>): Parse<ReadonlyArray<A>> =>
  (value) => {
    const parts = value.split(",").map((part) => part.trim())
    return parts.includes("") ? Result.fail("must not have an empty entry") : Result.all(parts.map(item))
  }

/**
 * Pairs as OpenTelemetry has them: `key=value,key=value`, both percent-encoded. Source: its SDK configuration, as W3C
 * Baggage.
 */
const pairs: Parse<Readonly<Record<string, string>>> = (value) => {
  const fault = "must be pairs key=value separated by commas, percent-encoded"
  const decoded = Result.try({
    try: () => value.split(",").map((pair) => pair.split("=").map((part) => decodeURIComponent(part.trim()))),
    catch: () => fault,
  })
  return Result.flatMap(decoded, (all) =>
    all.every((pair) => pair.length === 2 && pair[0] !== "")
      ? Result.succeed(Object.fromEntries(all))
      : Result.fail(fault),
  )
}

/** Headers, which may be credentials. */
const headerPairs: Parse<Redacted.Redacted<Readonly<Record<string, string>>>> = (value) =>
  Result.flatMap(pairs(value), (headers) =>
    Object.entries(headers).every(([name, text]) => /^[\w!#$%&'*+.^`|~-]+$/.test(name) && /^[\t\x20-\x7e]*$/.test(text))
      ? Result.succeed(Redacted.make(headers))
      : Result.fail("must be headers name=value separated by commas, percent-encoded"),
  )

const token: Parse<Redacted.Redacted<string>> = (value) =>
  value.length >= 16 && !/\s/.test(value)
    ? secret(value)
    : Result.fail("must be at least 16 characters without white space")

/** Spaces may follow a comma; a token itself has no white space. */
const tokens: Parse<ReadonlyArray<Redacted.Redacted<string>>> = (value) =>
  Result.mapError(
    Result.all(value.split(/, */).map(token)),
    () => "must be tokens separated by commas, each of at least 16 characters without white space",
  )

const owner: Parse<RepositoryOwner | "*"> = (value) => {
  const parsed = value === "*" ? value : parseOwner(value)
  return parsed === undefined
    ? Result.fail("must be owners of repositories separated by commas, as owner for GitHub or provider:owner, or *")
    : Result.succeed(parsed)
}

const branch: Parse<string> = (value) =>
  /^[^\p{Cc} ]{1,255}$/u.test(value)
    ? Result.succeed(value)
    : Result.fail("must be names of branches separated by commas, without spaces")

/** The issuer's keys decide who may register, so they come over https or from this machine. */
const issuerUrl: Parse<string> = (value) =>
  Result.flatMap(httpUrl(value), () =>
    value.startsWith("https:") || isLoopback(new URL(value).hostname.replace(/^\[|\]$/g, ""))
      ? Result.succeed(value)
      : Result.fail("must be an https URL, or an http URL on loopback"),
  )

const durationUnits = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
const duration: Parse<Duration.Duration> = (value) => {
  const [, amount, unit] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(value) ?? []
  return amount === undefined
    ? Result.fail("must be a number with a unit: ms, s, m, h or d")
    : Result.succeed(Duration.millis(Number(amount) * durationUnits[unit as keyof typeof durationUnits]))
}

const timeout: Parse<Duration.Duration> = (value) =>
  Result.flatMap(duration(value), (parsed) =>
    Duration.toMillis(parsed) >= 100 ? Result.succeed(parsed) : Result.fail("must be at least 100ms"),
  )

const encryptionKey: Parse<Redacted.Redacted<Uint8Array>> = (value) => {
  const bytes = Buffer.from(value, "base64")
  return bytes.length === 32 && /^[A-Za-z0-9+/]{43}=$/.test(value)
    ? Result.succeed(Redacted.make(new Uint8Array(bytes)))
    : Result.fail("must be keys of 32 bytes in base64, separated by commas, with the current key first")
}

const postgresUrl: Parse<Redacted.Redacted<string>> = (value) =>
  Result.map(parseDatabaseUrl(value), () => Redacted.make(value))

/** Entries `name=url`, separated by spaces. */
const nodeUrls: Parse<ReadonlyMap<string, Redacted.Redacted<string>>> = (value) => {
  const entries = value
    .trim()
    .split(/\s+/)
    .map((entry) => [entry.split("=", 1)[0]!, entry.slice(entry.indexOf("=") + 1)] as const)
  if (!entries.every(([name]) => /^[a-z][a-z0-9-]{0,30}$/.test(name))) {
    return Result.fail(
      "must be entries name=url separated by spaces; a name has lower-case letters, digits and hyphens",
    )
  }
  if (entries.some(([name]) => name === "platform")) {
    return Result.fail("must not name a node platform: that is the database of DATABASE_URL")
  }
  if (new Set(entries.map(([name]) => name)).size < entries.length) return Result.fail("must have each name once")
  return Result.map(
    Result.all(entries.map(([name, url]) => Result.map(postgresUrl(url), (parsed) => [name, parsed] as const))),
    (parsed) => new Map(parsed),
  )
}

const egressProxy: Parse<EgressProxy> = (value) => {
  const fault =
    "must be an http or https URL with a host, no port 0 and no path; a user and password may be in it, percent-encoded"
  return /^https?:\/\/(?![^/]*:0+\/?$)[^/?#\\\s]+\/?$/.test(value)
    ? Result.try({ try: () => egressProxyOf(value), catch: () => fault })
    : Result.fail(fault)
}

const isLoopback = (host: string) => host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host)
