import { Schema } from "effect"

const segments = "[a-z0-9_-]+(\\.[a-z0-9_-]+)*"
// With the flag u, the pattern is also in the OpenAPI document.
const shape = new RegExp(`^(\\*|${segments}(\\.\\*)?)$`, "u")

const maxLength = 128

/**
 * What a key may do: segments joined by dots. `*` as the last segment covers everything below, `*` alone everything.
 */
export const Permission = Schema.String.check(
  Schema.isMaxLength(maxLength, { expected: "at most 128 characters" }),
  Schema.isPattern(shape, {
    expected:
      "segments of a-z, 0-9, _ and - joined by dots, of which the last may be *, as in models.gpt-5.use or models.*",
  }),
).annotate({ examples: ["models.gpt-5.use"] })

/** The permissions of a key. */
export const Permissions = Schema.Array(Permission).check(
  Schema.isMaxLength(100, { expected: "a list of at most 100 permissions" }),
)

/** The permissions that a validation needs. */
export const NeededPermissions = Schema.Array(Permission).check(
  Schema.isMinLength(1, { expected: "a list of 1 to 20 permissions" }),
  Schema.isMaxLength(20, { expected: "a list of 1 to 20 permissions" }),
)

/** The permissions of a key, compiled once for each cached key. */
export class PermissionSet {
  readonly list: ReadonlyArray<string>
  #exact: ReadonlySet<string> | undefined
  /** What comes before `.*` in a permission. */
  #above: ReadonlySet<string> | undefined

  constructor(list: ReadonlyArray<string>) {
    this.list = list
  }

  /** The first of the needed permissions that the set does not grant; `undefined` when it grants them all. */
  missing(needed: ReadonlyArray<string>): string | undefined {
    return needed.find((permission) => !this.#grants(permission))
  }

  #grants(permission: string): boolean {
    if (this.list.length === 0) return false
    this.#exact ??= new Set(this.list)
    if (this.#exact.has(permission) || this.#exact.has("*")) return true
    this.#above ??= new Set(this.list.filter((one) => one.endsWith(".*")).map((one) => one.slice(0, -2)))
    if (this.#above.size === 0) return false
    for (let dot = permission.indexOf("."); dot !== -1; dot = permission.indexOf(".", dot + 1)) {
      if (this.#above.has(permission.slice(0, dot))) return true
    }
    return false
  }
}

/** The permissions of a key that has none. */
export const noPermissions = new PermissionSet([])
