import { readFile } from "node:fs/promises"
import { expect, test } from "vitest"
import { makePlan } from "./plan.ts"
import { simulate } from "./simulation.ts"
import { Actor, World } from "./world.ts"
import { slowness } from "../support/slowness.ts"

/** Promise (Simulation): The same seed makes the same run, to the byte. */

test.each(Array.from({ length: 20 }, (_, n) => n + 1))(
  "seed %i makes the same run twice, byte for byte",
  async (seed) => {
    const [one, other] = [await simulate(makePlan(seed, [0.5, 1])), await simulate(makePlan(seed, [0.5, 1]))]
    expect(one.log).toEqual(other.log)
    expect(one.digest).toBe(other.digest)
  },
  // A run that is given up goes on, and disturbs the next world: on a busy machine two runs take minutes.
  900_000 * slowness,
)

const aLife = (task: () => unknown) => {
  const world = new World(1)
  const actor = new Actor(world, "one", { skewMillis: 0, rate: 1 })
  actor.enqueue(task)
  world.after(10, () => {})
  return world.live(() => world.run(() => world.now >= 10))
}

test("what depends on real time ends a run", async () => {
  await expect(aLife(() => setTimeout(() => {}, 5))).resolves.toBeUndefined()
  await expect(aLife(() => void readFile("package.json"))).rejects.toThrow("waits for the real world")
  const outside = new Promise((resolve) => setImmediate(resolve)).then(() => Math.random()).catch(() => "refused")
  await expect(aLife(() => {})).rejects.toThrow("from outside of the world")
  await expect(outside).resolves.toBe("refused")
})
