import { assert, describe, it } from "@effect/vitest"
import { Schema } from "effect"
import { Permission, PermissionSet } from "#src/domain/keys/Permission.ts"

const isPermission = Schema.is(Permission)

describe("permissions", () => {
  it("are segments joined by dots, and the last segment may be *", () => {
    for (const text of ["a", "a.b", "models.gpt-5.use", "0_-", "*", "a.*", "a.b.*", "a".repeat(128)])
      assert.isTrue(isPermission(text), text)
    const bad = [
      "",
      ".",
      "a.",
      ".a",
      "a..b",
      "A",
      "é",
      "a b",
      "*.a",
      "a.*.b",
      "a*",
      "**",
      "a.**",
      "a\n",
      "a".repeat(129),
    ]
    for (const text of bad) assert.isFalse(isPermission(text), text)
  })

  it("cover what they name, with * at the end everything below, and * alone everything", () => {
    const cases: ReadonlyArray<
      readonly [list: ReadonlyArray<string>, needed: ReadonlyArray<string>, missing: string | undefined]
    > = [
      [[], ["a"], "a"],
      [[], [], undefined],
      [["a"], ["a"], undefined],
      [["a"], ["a.b"], "a.b"],
      [["a.*"], ["a.b", "a.b.c", "a.*"], undefined],
      [["a.*"], ["a"], "a"],
      [["a.*"], ["ab"], "ab"],
      [["a.b.*"], ["a.b.c", "a.c"], "a.c"],
      [["a.b.*"], ["a.*"], "a.*"],
      [["*"], ["x", "a.b.*", "*"], undefined],
      [["a", "b.*"], ["c", "d"], "c"],
    ]
    for (const [list, needed, missing] of cases) {
      assert.strictEqual(new PermissionSet(list).missing(needed), missing, `${list.join()} ${needed.join()}`)
    }
  })
})
