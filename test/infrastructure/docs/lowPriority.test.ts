import { describe, expect } from "@effect/vitest"
import { Effect } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import { getPriority } from "node:os"
import { DocsIndexes as DocsIndexesPort, inMemory } from "#src/domain/docs/DocsIndexes.ts"
import type { Page } from "#src/domain/docs/DocsPassages.ts"
import * as DocsIndexes from "#src/infrastructure/docs/ThreadedIndexes.ts"
import { ZipReader } from "#src/infrastructure/docs/ZipReader.ts"
import { manyPages } from "../../support/docs.ts"
import { it } from "../../support/it.ts"
import { zip } from "../../support/zip.ts"

const MiB = 1024 * 1024

/** The threads of this process with a lower priority than the process. */
const lowThreads = () =>
  readdirSync("/proc/self/task").filter((id) => {
    const stat = readFileSync(`/proc/self/task/${id}/stat`, "utf8")
    // The fields after the name, from the third on; nice is the nineteenth.
    const nice = stat.slice(stat.lastIndexOf(")") + 2).split(" ")[16]
    return Number(nice) > getPriority()
  }).length

const index = (pages: ReadonlyArray<Page>) =>
  Effect.scoped(DocsIndexesPort.use((indexes) => indexes.open(inMemory("org", `${pages.length}`, pages))))

// Each busy thread has as much CPU time as the one that answers requests, unless its priority is lower.
describe.skipIf(process.platform !== "linux")("on one core, requests come before", () => {
  it.effect("the thread that unpacks zips", () =>
    Effect.gen(function* () {
      expect(lowThreads()).toBe(0)
      yield* ZipReader.use(({ read }) => read(zip([{ path: "a.md", content: "# A" }])))
      expect(lowThreads()).toBe(1)
    }).pipe(Effect.provide(ZipReader.layer)),
  )

  it.effect("the thread of large indexes, but not that of small ones", () =>
    Effect.gen(function* () {
      yield* index(manyPages(5))
      expect(lowThreads()).toBe(0)
      yield* index(manyPages(300))
      expect(lowThreads()).toBe(1)
    }).pipe(Effect.provide(DocsIndexes.layer(80 * MiB))),
  )
})
