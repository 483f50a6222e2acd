import { Deferred, Effect, Exit, Fiber, Layer, Scope, Semaphore, Stream } from "effect"
import * as ByteBudget from "../../domain/ByteBudget.ts"
import { type Unavailable, UnprocessableContent } from "../../domain/Errors.ts"
import { DocsIndexes, type DocsSource, type SearchableDocs } from "../../domain/docs/DocsIndexes.ts"
import type { Page } from "../../domain/docs/DocsPassages.ts"
import { expectedBytes, maxOvershoot } from "../../domain/docs/DocsSearch.ts"
import type { IndexSize, IndexTask, IndexThreadData } from "./IndexThread.ts"
import * as WorkerThread from "../workerThread.ts"

/** Limit of a chat's wait for the memory of its index. */
const indexMemoryDeadline = "10 seconds"
/** Limit of the chats of one owner that wait for memory. */
const maxWaitingChats = 256
/** The share of the memory that only small indexes use, the largest too: small chats need not wait for large ones. */
const reservedShare = 1 / 8

interface Entry {
  readonly owner: string
  /** The thread that has it. */
  readonly thread: IndexThread
  readonly ready: Deferred.Deferred<SearchableDocs, Unavailable>
  /** Holds the index's memory in the budget and in the thread. */
  readonly scope: Scope.Closeable
  /** The number of chats that use the index or wait for it. At 0 it is kept until another index needs its memory. */
  users: number
  /** Its memory; 0 until it is built. */
  bytes: number
  /** The fiber that builds it; `undefined` after that. */
  builder: Fiber.Fiber<unknown, unknown> | undefined
}

/**
 * The idle index to drop for another one: the one used longest ago, of the owner whose idle indexes take most memory.
 */
const reclaimable = (entries: ReadonlyMap<string, Entry>) => {
  const idle = [...entries].filter(([, { users, bytes }]) => users === 0 && bytes > 0)
  const owners = [...Map.groupBy(idle, ([, { owner }]) => owner).values()]
  const sizes = owners.map((own) => ({ own, bytes: own.reduce((sum, [, { bytes }]) => sum + bytes, 0) }))
  return sizes.sort((a, b) => b.bytes - a.bytes)[0]?.own[0]
}

/**
 * Indexes by owner and version, in two threads: one for small indexes, which need not wait for what large ones do. All
 * together, in use, being built and idle, they take at most `maxBytes` of memory.
 */
export const layer = (maxBytes: number) =>
  Layer.effect(
    DocsIndexes,
    Effect.gen(function* () {
      const home = yield* Effect.scope
      /** In the order of their last use. */
      const entries = new Map<string, Entry>()
      let ids = 0
      const tooLarge = Effect.fail(
        new UnprocessableContent({
          error: `The documentation is too large: its index takes more than ${Math.floor(maxBytes / 1_048_576)} MiB of memory. Send fewer pages.`,
        }),
      )

      const drop = (key: string, entry: Entry) => {
        if (entries.get(key) === entry) entries.delete(key)
        // Its finalizers are synchronous.
        Effect.runSync(Scope.close(entry.scope, Exit.void))
      }
      /** Drops one idle index. Returns whether there was one. */
      const reclaim = () => {
        const found = reclaimable(entries)
        if (found !== undefined) drop(...found)
        return found !== undefined
      }
      const reserved = { bytes: maxBytes * reservedShare, maxSmall: maxBytes * reservedShare }
      const maxIndexBytes = maxBytes - reserved.bytes
      const reservationOf = ({ characters }: DocsSource) => Math.min(expectedBytes(characters), maxIndexBytes)
      const budget = ByteBudget.make({
        bytes: maxBytes,
        reserved,
        deadline: indexMemoryDeadline,
        maxWaiting: maxWaitingChats,
        error: "Too much documentation is being indexed; try again.",
        reclaim,
      })
      const startThread = (isBackground: boolean) =>
        makeThread({ maxBytes, isBackground }, (ended) => {
          for (const [key, entry] of entries) if (entry.thread === ended && entry.bytes > 0) drop(key, entry)
        })
      const [small, large] = [yield* startThread(false), yield* startThread(true)]
      const threadFor = (source: DocsSource) => (reservationOf(source) <= reserved.maxSmall ? small : large)

      const build = Effect.fnUntraced(function* (entry: Entry, source: DocsSource) {
        const { pages } = source
        const reservation = reservationOf(source)
        const lease = yield* budget.take(entry.owner, reservation)
        const { thread } = entry
        // Started now, so that a small chat does not wait for its thread to start while a large index is built.
        small.start()
        const id = ids++
        yield* Effect.addFinalizer(() => Effect.sync(() => thread.drop(id)))
        // Other requests continue between the batches.
        const addPages = Stream.runFoldEffect(
          pages,
          () => 0,
          (sum, batch) => Effect.as(Effect.andThen(thread.addPages(id, batch), Effect.yieldNow), sum + batch.length),
        )
        const limit = Math.min(reservation + maxOvershoot, maxIndexBytes)
        // One index at a time: the pages of the next one are not in the thread yet, so it loses nothing when the thread
        // ends.
        const { bytes, isWhole } = yield* thread.inTurn(
          Effect.flatMap(addPages, (count) =>
            thread.ask<IndexSize>(id, { op: "index", pages: count, maxBytes: limit }),
          ),
        )
        if (!isWhole)
          yield* Effect.logWarning("Documentation is too large for a full index; set a larger CHAT_INDEX_MEMORY", bytes)
        entry.bytes = bytes
        lease.resize(bytes)
        return {
          search: (question, options) => thread.ask(id, { op: "search", question, options }),
          page: (slug) => thread.ask(id, { op: "page", slug }),
        } satisfies SearchableDocs
      })

      const start = Effect.fnUntraced(function* (key: string, source: DocsSource) {
        const { owner } = source
        const scope = Scope.makeUnsafe()
        const [thread, ready] = [threadFor(source), Deferred.makeUnsafe<SearchableDocs, Unavailable>()]
        const entry: Entry = { owner, thread, ready, scope, users: 0, bytes: 0, builder: undefined }
        entries.set(key, entry)
        entry.builder = yield* build(entry, source).pipe(
          Effect.onExit((exit) =>
            Effect.sync(() => {
              entry.builder = undefined
              Deferred.doneUnsafe(entry.ready, exit)
              if (Exit.isFailure(exit)) drop(key, entry)
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
          if (source.textBytes > maxBytes) return yield* tooLarge
          // With the owner, because the memory budget counts per owner.
          const key = `${source.owner} ${source.version}`
          const { ready } = yield* Effect.acquireRelease(enter(key, source), leave)
          return yield* Deferred.await(ready)
        }),
      })
    }),
  )

const MiB = 1024 * 1024
/** Heap of the thread besides its indexes: code, and garbage of indexing. */
const heapOverheadBytes = 24 * MiB
/**
 * Heap of the thread of small indexes, for each byte that is counted. Text in which every word differs takes a sixth
 * more than is counted, and an index may exceed its reservation. Large indexes stay within theirs.
 */
const smallHeapFactor = 1.35

/** A thread that builds and keeps indexes by id. */
interface IndexThread {
  /** Starts the thread if it does not run. */
  readonly start: () => void
  /** Sends a task to the thread and waits for its answer. */
  readonly ask: <A>(id: number, task: IndexTask) => Effect.Effect<A, Unavailable>
  /** Adds pages to those of an index that is not built yet. */
  readonly addPages: (id: number, pages: ReadonlyArray<Page>) => Effect.Effect<void>
  /** Runs what builds an index when no other is being built. */
  readonly inTurn: <A, E, R>(build: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** Drops an index, or stops building it. */
  readonly drop: (id: number) => void
}

/**
 * Makes a thread for indexes. The first task starts it.
 *
 * @param limits maxBytes: limit of the memory of all indexes; isBackground: whether the thread uses only CPU time that
 *   others leave
 * @param onEnd called after the thread and its indexes have ended
 */
export const makeThread = Effect.fnUntraced(function* (
  { maxBytes, isBackground }: { readonly maxBytes: number; readonly isBackground: boolean },
  onEnd: (ended: IndexThread) => void,
) {
  const worker = yield* WorkerThread.make<IndexTask>({
    module: "docs/IndexThread",
    workerData: { isBackground } satisfies IndexThreadData,
    resourceLimits: {
      maxOldGenerationSizeMb: Math.ceil((maxBytes * (isBackground ? 1 : smallHeapFactor) + heapOverheadBytes) / MiB),
      maxYoungGenerationSizeMb: 8,
    },
    lost: "The index of the documentation was lost; try again.",
    onEnd: () => onEnd(thread),
  })
  const turns = yield* Semaphore.make(1)
  const thread: IndexThread = {
    inTurn: turns.withPermits(1),
    start: worker.start,
    ask: worker.ask,
    addPages: (id, pages) => Effect.sync(() => worker.send(id, { op: "add", pages })),
    drop: (id) => worker.sendIfRunning(id, { op: "drop" }),
  }
  return thread
})
