/** One thing that was looked at, and what is to be done about it when it is not well. */
export interface Check {
  /** What was looked at, in a word or two. */
  readonly name: string
  /** `fail`: the service does not work so; `warn`: it does, and something is missing or near its end. */
  readonly state: "ok" | "warn" | "fail"
  /** What was found; holds no secret. */
  readonly message: string
  /** What to do. */
  readonly remedy?: string
}

export const ok = (name: string, message: string): Check => ({ name, state: "ok", message })
export const warn = (name: string, message: string, remedy: string): Check => ({ name, state: "warn", message, remedy })
export const fail = (name: string, message: string, remedy: string): Check => ({ name, state: "fail", message, remedy })
