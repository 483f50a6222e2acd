import { expect, test } from "vitest"
import { makePlan } from "./plan.ts"
import { simulate } from "./simulation.ts"

test.each(Array.from({ length: 20 }, (_, n) => n + 1))(
  "seed %i makes the same run twice, byte for byte",
  async (seed) => {
    const [one, other] = [await simulate(makePlan(seed, [0.5, 1])), await simulate(makePlan(seed, [0.5, 1]))]
    expect(one.log).toEqual(other.log)
    expect(one.digest).toBe(other.digest)
  },
)
