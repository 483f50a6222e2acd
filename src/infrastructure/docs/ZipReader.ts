import { Context, Data, Effect, Layer } from "effect"
import { zipLimits } from "../../domain/docs/Documents.ts"
import type { Page } from "../../domain/docs/DocsPassages.ts"
import { type PageFile, slugsOf } from "../../domain/docs/docsSlugs.ts"
import { textOf } from "./textOf.ts"
import type { ZipBatch, ZipTask, ZipThreadData } from "./ZipThread.ts"
import * as WorkerThread from "../workerThread.ts"

/** Heap of the thread. The bytes of zips and pages are outside of it. */
const maxHeapMiB = 48

/** The zip is refused. `message` follows the URL in a sentence. */
export class ZipFault extends Data.TaggedError("ZipFault")<{ readonly message: string }> {}

/** Unpacks zips in a thread of its own, so that other requests continue. */
export class ZipReader extends Context.Service<ZipReader>()("gatehouse/infrastructure/ZipReader", {
  make: Effect.gen(function* () {
    const thread = yield* WorkerThread.make<ZipTask>({
      module: "docs/ZipThread",
      workerData: zipLimits satisfies ZipThreadData,
      resourceLimits: { maxOldGenerationSizeMb: maxHeapMiB, maxYoungGenerationSizeMb: 8 },
      lost: "The zip could not be unpacked; try again.",
    })
    let ids = 0

    return {
      /** Returns the markdown pages of a zip and the digest of the zip. */
      read: Effect.fn("Documents.unpack")(function* (bytes: Uint8Array) {
        const id = ids++
        yield* Effect.addFinalizer(() => Effect.sync(() => thread.sendIfRunning(id, { op: "close" })))
        const version = yield* thread.ask<string>(id, { op: "open", bytes })
        const files: Array<PageFile & Pick<Page, "markdown">> = []
        for (;;) {
          const batch = yield* thread.ask<ZipBatch>(id, { op: "next" })
          if (batch.fault !== undefined) return yield* new ZipFault({ message: batch.fault })
          if (batch.pages.length === 0) break
          for (const { content, path, slug } of batch.pages) files.push({ path, slug, markdown: textOf(content) })
        }
        const slugs = slugsOf(files)
        return { version, pages: files.map(({ markdown }, at) => ({ slug: slugs[at]!, markdown })) }
      }, Effect.scoped),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
