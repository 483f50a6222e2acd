/** The result of one check of `gatehouse doctor`. */
export interface Check {
  /** The subject of the check, in one or two words. */
  readonly name: string
  /** `fail`: the service does not work; `warn`: it works, but a setting is missing or a limit is near. */
  readonly state: "ok" | "warn" | "fail"
  /** What the check found. Contains no secret. */
  readonly message: string
  /** What to do; absent if the state is `ok`. */
  readonly remedy?: string
}

export const ok = (name: string, message: string): Check => ({ name, state: "ok", message })
export const warn = (name: string, message: string, remedy: string): Check => ({ name, state: "warn", message, remedy })
export const fail = (name: string, message: string, remedy: string): Check => ({ name, state: "fail", message, remedy })

/** CI tokens are refused from this offset on, in milliseconds. */
const maxOffsetMillis = 30_000
/** A warning from this offset on, in milliseconds. */
const warnOffsetMillis = 5_000

/** This version is newer, so a clock with an earlier time was never set. Milliseconds since 1970. */
const earliestPlausible = Date.UTC(2026, 0, 1)

const refused = "CI tokens and webhooks are refused because of their timestamps"

/**
 * Compares this machine's clock with another one.
 *
 * @param other the name of the other clock
 * @param offset how far this machine's clock is ahead, in milliseconds; negative: behind
 * @param uncertainty the error of the measurement, in milliseconds, such as half the time of the request
 */
export const clockCheck = (other: string, offset: number, uncertainty: number): Check => {
  const certainOffset = Math.max(0, Math.abs(offset) - uncertainty)
  if (certainOffset < warnOffsetMillis) return ok("clock", `agrees with ${other}`)
  const found = `this machine is ${(Math.abs(offset) / 1000).toFixed(1)} s ${offset < 0 ? "behind" : "ahead of"} ${other}`
  const remedy = "synchronize the clocks of both machines, for example with NTP"
  return certainOffset < maxOffsetMillis ? warn("clock", found, remedy) : fail("clock", `${found}: ${refused}`, remedy)
}

/**
 * Checks this machine's clock when no other clock is available.
 *
 * @param now the time of this machine, in milliseconds since 1970
 */
export const plausibleClock = (now: number): Check => {
  const time = new Date(now).toISOString()
  return now < earliestPlausible
    ? fail("clock", `this machine's clock shows ${time}: ${refused}`, "set the clock, for example with NTP")
    : ok("clock", `this machine's clock shows ${time}, which is plausible; no other clock was available`)
}

/** `1.25 TB`: bytes for people. */
export const inBytes = (bytes: number): string => {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"]
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3))
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${units[power]}`
}
