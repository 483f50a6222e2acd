import { afterEach, expect, it, vi } from "@effect/vitest"
import { totalmem } from "node:os"
import { getHeapStatistics } from "node:v8"
import { cachesWithin, memoryLimit } from "#src/boot/memory.ts"

const MiB = 1024 * 1024

afterEach(() => vi.restoreAllMocks())

it("the available memory is the least of the cgroup's, the machine's and the heap's", () => {
  const constrained = vi.spyOn(process, "constrainedMemory")
  const others = Math.min(totalmem(), getHeapStatistics().heap_size_limit)
  for (const [limit, expected] of [
    [64 * MiB, 64 * MiB],
    [0, others],
    [2 ** 64, others],
  ] as const) {
    constrained.mockReturnValue(limit)
    expect(memoryLimit()).toBe(expected)
  }
})

it("each cache gets a part of it, within bounds", () => {
  expect(cachesWithin(256 * MiB)).toEqual({
    keys: 65_536,
    indexes: 64 * MiB,
    chatBodies: 16 * MiB,
    documents: 16 * MiB,
  })
  expect(cachesWithin(32 * 1024 * MiB)).toEqual({
    keys: 100_000,
    indexes: 80 * MiB,
    chatBodies: 16 * MiB,
    documents: 128 * MiB,
  })
  expect(cachesWithin(MiB)).toEqual({ keys: 1_000, indexes: 16 * MiB, chatBodies: 8 * MiB, documents: 8 * MiB })
})
