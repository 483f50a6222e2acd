import { PGlite } from "@electric-sql/pglite"
import { NodeFS } from "@electric-sql/pglite/nodefs"
import { constants, fsyncSync, readdirSync } from "node:fs"
import { open, stat } from "node:fs/promises"
import { join } from "node:path"
import { planSettings } from "../planSettings.ts"

/** Emscripten's file system for Node, with the fsync that it lacks and that PostgreSQL's durability needs. */
export class DurableNodeFS extends NodeFS {
  override async init(...args: Parameters<NodeFS["init"]>): Promise<Awaited<ReturnType<NodeFS["init"]>>> {
    const { emscriptenOpts } = await super.init(...args)
    return {
      emscriptenOpts: {
        ...emscriptenOpts,
        preRun: [
          ...[emscriptenOpts.preRun ?? []].flat(),
          ({ NODEFS }: NodeFileSystem) => {
            NODEFS.stream_ops.fsync = (stream) =>
              NODEFS.tryFSOperation(() => {
                if (!isUnsyncable(stream.node.mode)) fsyncSync(stream.nfd)
                return 0
              })
          },
        ],
      },
    }
  }
}

/** The error of a full disk in the file system of the engine, by its own numbers. */
const noSpaceLeft = 51

/** What ended the engine, in words. Errors of its file system are objects with a number alone. */
export const describeFault = (error: unknown): string => {
  if (typeof error !== "object" || error === null || !("errno" in error)) return String(error)
  return error.errno === noSpaceLeft ? "no space is left on the disk" : `error ${error.errno} of the file system`
}

interface Stream {
  readonly nfd: number
  readonly node: { readonly mode: number }
}

interface NodeFileSystem {
  readonly NODEFS: {
    readonly stream_ops: { fsync?: (stream: Stream) => number }
    readonly tryFSOperation: <A>(evaluate: () => A) => A
  }
}

/** The start parameters of the engine: PGlite's, with durability, less memory, and plans as on a server. */
export const startParams = [
  ...PGlite.defaultStartParams.filter((param) => param !== "-F"), // -F is fsync off
  ...["-c", "wal_sync_method=fsync"], // fdatasync does nothing here
  ...["-c", "shared_buffers=16MB"], // the operating system's cache holds the rest
  ...Object.entries(planSettings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
]

const maxConcurrentSyncs = 16

/** Syncs a folder and everything in it to disk, several files at a time, which the disk combines. */
export const syncTree = async (folder: string) => {
  const paths = [
    folder,
    ...readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => join(folder, name)),
  ].values()
  const syncNext = async () => {
    for (const path of paths) await sync(path)
  }
  await Promise.all(Array.from({ length: maxConcurrentSyncs }, syncNext))
}

/** Syncs a file, or the entries of a folder, to disk. */
export const sync = async (path: string) => {
  const { mode } = await stat(path)
  if (isUnsyncable(mode)) return
  const file = await open(path, isFolder(mode) ? "r" : "r+")
  await file.sync()
  await file.close()
}

const isFolder = (mode: number) => (mode & constants.S_IFMT) === constants.S_IFDIR

/** Windows has no fsync for folders and does not need it. */
const isUnsyncable = (mode: number) => process.platform === "win32" && isFolder(mode)
