import { Duration, Redacted, Result } from "effect"
import { parseOwner, type RepositoryOwner } from "../domain/deployments/CiProvider.ts"
import { type EgressProxy, egressProxyOf } from "../infrastructure/net/EgressProxy.ts"

// Effect's Config parsers accept other spellings (Port refuses 0, Duration refuses 5s, ByteSize refuses a plain number;
// 3e3, yes and 1.5GiB are accepted), and their errors take more than one line.
export type Parse<A> = (text: string) => Result.Result<A, string>

export const text: Parse<string> = Result.succeed
export const secret: Parse<Redacted.Redacted<string>> = (value) => Result.succeed(Redacted.make(value))

export const integer =
  (minimum: number, maximum: number): Parse<number> =>
  (value) =>
    /^\d{1,9}$/.test(value) && Number(value) >= minimum && Number(value) <= maximum
      ? Result.succeed(Number(value))
      : Result.fail(`must be a whole number from ${minimum} to ${maximum}`)

const byteUnits = { "": 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4 } as const
/** A number of bytes, up to 1000 TiB. */
export const bytes: Parse<number> = (value) => {
  const [, amount, unit = ""] = /^(\d{1,15})(KiB|MiB|GiB|TiB)?$/.exec(value) ?? []
  const parsed = Number(amount) * byteUnits[unit as keyof typeof byteUnits]
  return parsed <= 1000 * byteUnits.TiB
    ? Result.succeed(parsed)
    : Result.fail("must be a number of bytes up to 1000TiB, with or without the unit KiB, MiB, GiB or TiB")
}

/** A number of days, or `off`. */
export const days: Parse<number | "off"> = (value) =>
  value.toLowerCase() === "off"
    ? Result.succeed("off")
    : Result.mapError(integer(1, 36_500)(value), () => "must be a whole number of days from 1 to 36500, or off")

export const httpUrl: Parse<string> = (value) =>
  URL.canParse(value) && /^https?:$/.test(new URL(value).protocol)
    ? Result.succeed(value.replace(/\/+$/, ""))
    : Result.fail("must be an http or https URL")

export const oneOf =
  <const A extends string>(...values: ReadonlyArray<A>): Parse<A> =>
  (value) =>
    values.includes(value.toLowerCase() as A)
      ? Result.succeed(value.toLowerCase() as A)
      : Result.fail(`must be one of ${values.join(", ")}`)

export const indexMemory: Parse<number> = (value) =>
  Result.flatMap(bytes(value), (parsed) =>
    parsed >= 16 * byteUnits.MiB ? Result.succeed(parsed) : Result.fail("must be at least 16MiB"),
  )

export const boolean: Parse<boolean> = (value) => Result.map(oneOf("true", "false")(value), (word) => word === "true")

export const list =
  <A>(item: Parse<A>): Parse<ReadonlyArray<A>> =>
  (value) => {
    const parts = value.split(",").map((part) => part.trim())
    return parts.includes("") ? Result.fail("must not have an empty entry") : Result.all(parts.map(item))
  }

export const token: Parse<Redacted.Redacted<string>> = (value) =>
  value.length >= 16 && !/\s/.test(value)
    ? secret(value)
    : Result.fail("must be at least 16 characters without white space")

/** Spaces may follow a comma; a token itself has no white space. */
export const tokens: Parse<ReadonlyArray<Redacted.Redacted<string>>> = (value) =>
  Result.mapError(
    Result.all(value.split(/, */).map(token)),
    () => "must be tokens separated by commas, each of at least 16 characters without white space",
  )

export const owner: Parse<RepositoryOwner | "*"> = (value) => {
  const parsed = value === "*" ? value : parseOwner(value)
  return parsed === undefined
    ? Result.fail("must be owners of repositories separated by commas, as owner for GitHub or provider:owner, or *")
    : Result.succeed(parsed)
}

export const branch: Parse<string> = (value) =>
  /^[^\p{Cc} ]{1,255}$/u.test(value)
    ? Result.succeed(value)
    : Result.fail("must be names of branches separated by commas, without spaces")

/** The issuer's keys decide who may register, so they come over https or from this machine. */
export const issuerUrl: Parse<string> = (value) =>
  Result.flatMap(httpUrl(value), () =>
    value.startsWith("https:") || isLoopback(new URL(value).hostname.replace(/^\[|\]$/g, ""))
      ? Result.succeed(value)
      : Result.fail("must be an https URL, or an http URL on loopback"),
  )

const durationUnits = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const
export const duration: Parse<Duration.Duration> = (value) => {
  const [, amount, unit] = /^(\d{1,9})(ms|s|m|h|d)$/.exec(value) ?? []
  return amount === undefined
    ? Result.fail("must be a number with a unit: ms, s, m, h or d")
    : Result.succeed(Duration.millis(Number(amount) * durationUnits[unit as keyof typeof durationUnits]))
}

export const timeout: Parse<Duration.Duration> = (value) =>
  Result.flatMap(duration(value), (parsed) =>
    Duration.toMillis(parsed) >= 100 ? Result.succeed(parsed) : Result.fail("must be at least 100ms"),
  )

export const encryptionKey: Parse<Redacted.Redacted<Uint8Array>> = (value) => {
  const bytes = Buffer.from(value, "base64")
  return bytes.length === 32 && /^[A-Za-z0-9+/]{43}=$/.test(value)
    ? Result.succeed(Redacted.make(new Uint8Array(bytes)))
    : Result.fail("must be keys of 32 bytes in base64, separated by commas, with the current key first")
}

export const postgresUrl: Parse<Redacted.Redacted<string>> = (value) =>
  /^postgres(ql)?:\/\/./.test(value) && URL.canParse(value)
    ? Result.succeed(Redacted.make(value))
    : Result.fail("must be a PostgreSQL URL that starts with postgres://")

export const egressProxy: Parse<EgressProxy> = (value) => {
  const fault =
    "must be an http or https URL with a host, and no path; a user and password may be in it, percent-encoded"
  return /^https?:\/\/[^/?#\\\s]+\/?$/.test(value)
    ? Result.try({ try: () => egressProxyOf(value), catch: () => fault })
    : Result.fail(fault)
}

export const isLoopback = (host: string) => host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host)
