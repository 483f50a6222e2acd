import { Deferred, Effect, Exit, Fiber, Layer, Scope } from "effect"
import * as ByteBudget from "../../domain/ByteBudget.ts"
import { DocsIndexes, type DocsSource, type SearchableDocs } from "../../domain/chat/DocsIndexes.ts"
import type { Page } from "../../domain/chat/DocsPassages.ts"
import { expectedBytes, textBytes } from "../../domain/chat/DocsSearch.ts"
import { type Unavailable, UnprocessableContent } from "../../domain/Errors.ts"
import type { IndexSize } from "./IndexThread.ts"
import * as IndexThreads from "./indexThreads.ts"

/** How long a chat waits for the memory of its index. */
const deadline = "10 seconds"
/** How many chats of one owner may wait for that. */
const maxWaiting = 64

interface Entry {
  readonly owner: string
  readonly ready: Deferred.Deferred<SearchableDocs, Unavailable>
  /** Its memory, in the budget and in the thread. */
  readonly scope: Scope.Closeable
  /** How many chats use it or wait for it. At 0 it is kept until another needs its memory. */
  users: number
  /** What it takes in memory; 0 until it is made. */
  bytes: number
  /** Makes it, until it is made. */
  builder: Fiber.Fiber<unknown, unknown> | undefined
}

/**
 * Indexes in a thread of their own, by owner and version. In use, in the making and kept, all of them together take
 * `maxBytes` of memory.
 */
export const layer = (maxBytes: number) =>
  Layer.effect(
    DocsIndexes,
    Effect.gen(function* () {
      const home = yield* Effect.scope
      /** In the order of their use. */
      const entries = new Map<string, Entry>()
      let ids = 0
      const tooLarge = Effect.fail(
        new UnprocessableContent({
          error: `The documentation is too large: its text takes more than ${Math.floor(maxBytes / 1_048_576)} MiB of memory.`,
        }),
      )

      const forget = (key: string, entry: Entry) => {
        if (entries.get(key) === entry) entries.delete(key)
        // Its finalizers are synchronous.
        Effect.runSync(Scope.close(entry.scope, Exit.void))
      }
      /** Forgets one index that nobody uses: the oldest of the owner whose indexes take most. */
      const reclaim = () => {
        const idle = [...entries].filter(([, { users, bytes }]) => users === 0 && bytes > 0)
        const byOwner = Map.groupBy(idle, ([, { owner }]) => owner)
        const sizes = [...byOwner.values()].map((own) => ({ own, bytes: own.reduce((sum, [, e]) => sum + e.bytes, 0) }))
        const most = sizes.sort((a, b) => b.bytes - a.bytes)[0]
        if (most !== undefined) forget(...most.own[0]!)
        return most !== undefined
      }
      const budget = ByteBudget.make({
        bytes: maxBytes,
        deadline,
        maxWaiting,
        error: "Too much documentation is being indexed; try again.",
        reclaim,
      })
      const thread = yield* IndexThreads.make(maxBytes, () => {
        for (const [key, entry] of entries) if (entry.bytes > 0) forget(key, entry)
      })

      const build = Effect.fnUntraced(function* (entry: Entry, pages: ReadonlyArray<Page>) {
        const lease = yield* budget.take(entry.owner, expectedBytes(pages))
        const id = ids++
        yield* Effect.addFinalizer(() => Effect.sync(() => thread.drop(id)))
        const { bytes, isWhole } = yield* thread.ask<IndexSize>(id, { op: "index", pages })
        if (!isWhole)
          yield* Effect.logWarning("Documentation is too large to be searched as a whole; set CHAT_INDEX_MEMORY", bytes)
        entry.bytes = bytes
        lease.resize(bytes)
        return {
          search: (question, options) => thread.ask(id, { op: "search", question, options }),
          page: (slug) => thread.ask(id, { op: "page", slug }),
        } satisfies SearchableDocs
      })

      const start = Effect.fnUntraced(function* (key: string, { owner, pages }: DocsSource) {
        const scope = Scope.makeUnsafe()
        const entry: Entry = { owner, ready: Deferred.makeUnsafe(), scope, users: 0, bytes: 0, builder: undefined }
        entries.set(key, entry)
        entry.builder = yield* build(entry, pages).pipe(
          Effect.onExit((exit) =>
            Effect.sync(() => {
              entry.builder = undefined
              Deferred.doneUnsafe(entry.ready, exit)
              if (Exit.isFailure(exit)) forget(key, entry)
            }),
          ),
          Scope.provide(scope),
          Effect.forkIn(home),
        )
        return entry
      })

      const enter = Effect.fnUntraced(function* (key: string, source: DocsSource) {
        const entry = entries.get(key) ?? (yield* start(key, source))
        entry.users++
        entries.delete(key)
        entries.set(key, entry)
        return entry
      })
      const leave = Effect.fnUntraced(function* (entry: Entry) {
        if (--entry.users > 0) return
        if (entry.builder !== undefined) yield* Fiber.interrupt(entry.builder)
        budget.grant()
      })

      return DocsIndexes.of({
        open: Effect.fn("DocsIndexes.open")(function* (source: DocsSource) {
          if (textBytes(source.pages) > maxBytes) return yield* tooLarge
          // By owner: what one org keeps in memory is told from what another does.
          const key = `${source.owner} ${source.version}`
          const { ready } = yield* Effect.acquireRelease(enter(key, source), leave)
          return yield* Deferred.await(ready)
        }),
      })
    }),
  )
