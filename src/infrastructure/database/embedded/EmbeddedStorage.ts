import { PGlite } from "@electric-sql/pglite"
import { NodeFS } from "@electric-sql/pglite/nodefs"
import { constants, fsyncSync, readdirSync } from "node:fs"
import { open, stat } from "node:fs/promises"
import { join } from "node:path"
import { planSettings } from "../planSettings.ts"

/** Emscripten's file system on Node leaves out fsync, and PostgreSQL's durability is in it. */
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

/** How the engine is started: as PGlite does, but with PostgreSQL's own durability, less memory, and plans as on a server. */
export const startParams = [
  ...PGlite.defaultStartParams.filter((param) => param !== "-F"), // -F is fsync off
  ...["-c", "wal_sync_method=fsync"], // fdatasync does nothing here
  ...["-c", "shared_buffers=16MB"], // the rest is in the operating system's cache anyway
  ...Object.entries(planSettings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
]

/** Puts a folder and all that is in it on the disk; sixteen at a time, which the disk does together. */
export const syncTree = async (folder: string) => {
  const left = [
    folder,
    ...readdirSync(folder, { recursive: true, encoding: "utf8" }).map((name) => join(folder, name)),
  ].values()
  const lane = async () => {
    for (const path of left) await sync(path)
  }
  await Promise.all(Array.from({ length: 16 }, lane))
}

/** Puts a file or the list of a folder on the disk. */
export const sync = async (path: string) => {
  const { mode } = await stat(path)
  if (isUnsyncable(mode)) return
  const file = await open(path, isFolder(mode) ? "r" : "r+")
  await file.sync()
  await file.close()
}

const isFolder = (mode: number) => (mode & constants.S_IFMT) === constants.S_IFDIR

/** Windows has no fsync of a folder, and needs none. */
const isUnsyncable = (mode: number) => process.platform === "win32" && isFolder(mode)
