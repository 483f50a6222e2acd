import type { Check } from "./Check.ts"
import { fail, ok, warn } from "./Check.ts"

/** CI tokens are taken with clocks this far apart, in milliseconds, and no farther. */
const tolerated = 30_000
/** From here on something is wrong with a clock, in milliseconds. */
const suspicious = 5_000

/** This version was made after it: an earlier time is that of a clock which was never set. */
const earliest = Date.UTC(2026, 0, 1)

const remedy = "synchronise the clocks of both machines (NTP)"

/**
 * How far this machine's clock is ahead of another one, in milliseconds. `uncertainty`: how much of it the measuring may
 * have made, as by the time that the answer took.
 */
export const clockCheck = (than: string, ahead: number, uncertainty: number): Check => {
  const apart = Math.max(0, Math.abs(ahead) - uncertainty)
  const seconds = `${(Math.abs(ahead) / 1000).toFixed(1)} s ${ahead < 0 ? "behind" : "ahead of"} ${than}`
  if (apart < suspicious) return ok("clock", `with ${than}`)
  return apart < tolerated
    ? warn("clock", `this machine is ${seconds}`, remedy)
    : fail("clock", `this machine is ${seconds}: CI tokens and webhooks are refused for their times`, remedy)
}

/** This machine's clock alone, where no other could be asked. Takes its time, in milliseconds since 1970. */
export const plausibleClock = (now: number): Check => {
  const time = new Date(now).toISOString()
  return now < earliest
    ? fail("clock", `this machine's says ${time}: CI tokens and webhooks are refused for their times`, "set it (NTP)")
    : ok("clock", `this machine's says ${time}, which is plausible; there was no other to compare it with`)
}
