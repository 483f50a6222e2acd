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
