import { PGlite } from "@electric-sql/pglite"
import { NodeFS } from "@electric-sql/pglite/nodefs"
import { closeSync, constants, fsyncSync, openSync, statSync } from "node:fs"

/** Emscripten's file system on Node leaves out fsync, and PostgreSQL's durability is in it. */
export class DurableNodeFS extends NodeFS {
  override async init(...args: Parameters<NodeFS["init"]>) {
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

/** How the engine is started: as PGlite does, but with PostgreSQL's own durability, and less memory. */
export const startParams = [
  ...PGlite.defaultStartParams.filter((param) => param !== "-F"), // -F is fsync off
  ...["-c", "wal_sync_method=fsync"], // fdatasync does nothing here
  ...["-c", "shared_buffers=16MB"], // the rest is in the operating system's cache anyway
]

/** Puts a file or folder on the disk. */
export const sync = (path: string) => {
  const { mode } = statSync(path)
  if (isUnsyncable(mode)) return
  const file = openSync(path, isFolder(mode) ? "r" : "r+")
  fsyncSync(file)
  closeSync(file)
}

const isFolder = (mode: number) => (mode & constants.S_IFMT) === constants.S_IFDIR

/** Windows has no fsync of a folder, and needs none. */
const isUnsyncable = (mode: number) => process.platform === "win32" && isFolder(mode)
