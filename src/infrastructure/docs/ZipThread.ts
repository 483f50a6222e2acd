import { isUtf8 } from "node:buffer"
import { createHash } from "node:crypto"
import { on } from "node:events"
import type { Readable } from "node:stream"
import { promisify } from "node:util"
import { parentPort, workerData } from "node:worker_threads"
import { crc32, inflateRawSync } from "node:zlib"
import { type Entry, fromBuffer, getFileNameLowLevel, type Options, type ZipFile } from "yauzl"
import type { zipLimits } from "../../domain/docs/Documents.ts"
import { isForbidden, isMarkdown, type PageFile } from "../../domain/docs/docsSlugs.ts"
import { splitFrontMatter, textsOf } from "../../domain/docs/frontMatter.ts"
import { textOf } from "./textOf.ts"
import { lowerPriority, type ThreadCall, type ThreadReply } from "../workerThread.ts"

/** The limits of a zip. The thread has them from its maker: their file would load more than the thread needs. */
export type ZipThreadData = typeof zipLimits

/** A task for the zip of an id. `close` has no reply. */
export type ZipTask =
  | { readonly op: "open"; readonly bytes: Uint8Array }
  | { readonly op: "next" }
  | { readonly op: "close" }

/** The next pages of a zip (none at its end), or what is wrong with the zip. */
export type ZipBatch =
  | { readonly pages: ReadonlyArray<ZippedPage>; readonly fault?: never }
  | { readonly fault: string; readonly pages?: never }

/** The bytes of a batch; each batch holds up other requests while it is decoded. */
const batchLength = 256 * 1024

lowerPriority()
const limits = workerData as ZipThreadData
const readers = new Map<number, AsyncGenerator<ZippedPage>>()

const nextBatch = async (reader: AsyncGenerator<ZippedPage>): Promise<ZipBatch> => {
  const pages: Array<ZippedPage> = []
  try {
    for (let length = 0; length < batchLength;) {
      const { done, value } = await reader.next()
      if (done === true) break
      pages.push(value)
      length += value.content.length
    }
    return { pages }
  } catch (error) {
    return { fault: refusalOf(error) }
  }
}

const reply = (message: ThreadReply, transfer: ReadonlyArray<ArrayBuffer> = []) =>
  parentPort!.postMessage(message, [...transfer])

parentPort!.on("message", async ({ call, id, task }: ThreadCall<ZipTask>) => {
  if (task.op === "close") {
    const reader = readers.get(id)
    readers.delete(id)
    await reader?.return(undefined)
    return
  }
  if (task.op === "open") {
    readers.set(id, readPages(task.bytes))
    return reply({ call, value: createHash("sha256").update(task.bytes).digest("hex") })
  }
  const reader = readers.get(id)
  if (reader === undefined) return reply({ call, lost: true })
  const batch = await nextBatch(reader)
  reply(
    { call, value: batch },
    batch.pages?.map(({ content }) => content.buffer),
  )
})

/** Limit of the entries of a zip for each page that it may have: other files and folders count, too. */
const entriesPerPage = 50
/** The bytes of a file in which front matter is looked for. */
const maxMatterBytes = 64 * 1024

/** A page as the zip has it. */
interface ZippedPage extends PageFile {
  readonly content: Uint8Array<ArrayBuffer>
}

/** The zip is refused. `message` follows the URL in a sentence. */
class RefusedZip extends Error {}
const fault = (message: string) => new RefusedZip(message)
const broken = fault("is not a zip, or is damaged")

const inMiB = (bytes: number) => `${bytes / 1024 / 1024} MiB`
const tooLarge = fault(`is larger than ${inMiB(limits.unpackedBytes)} unpacked`)
const tooLargePage = (path: string) =>
  fault(`has a page of more than ${inMiB(limits.pageBytes)}: ${JSON.stringify(path.slice(0, 100))}`)

/** Files of macOS and of version control. */
const isHidden = (path: string) => path.split("/").some((part) => part.startsWith(".") || part === "__MACOSX")

/** The top folder of an archive of GitHub or GitLab: `repository-branch`. */
const isArchiveFolder = (name: string) => /[^-]-./.test(name)

const open = promisify<Buffer, Options, ZipFile>(fromBuffer)

/**
 * The entries of the central directory. A file that was removed from it is not read, even if its bytes are still there.
 */
async function* entriesOf(zip: ZipFile) {
  const entries = on(zip, "entry", { close: ["end"] }) as AsyncIterable<[Entry]>
  zip.readEntry()
  for await (const [entry] of entries) {
    yield entry
    zip.readEntry()
  }
}

/** The flag for UTF-8. Many zips have UTF-8 paths without it. */
const utf8Flag = 0x800
/** The path of an entry, in UTF-8 or the encoding of DOS, without `.` parts. Some tools of Windows write `\`. */
const pathOf = ({ extraFields, fileName, generalPurposeBitFlag: flags }: Entry) => {
  const name = fileName as unknown as Buffer
  const path = getFileNameLowLevel(isUtf8(name) ? flags | utf8Flag : flags & ~utf8Flag, name, extraFields, true)
  return path
    .replaceAll("\\", "/")
    .split("/")
    .filter((part) => part !== ".")
    .join("/")
}

/** Whether an entry is a symbolic link of Unix. Its bytes are the path of its target. */
const isLink = ({ externalFileAttributes, versionMadeBy }: Entry) =>
  versionMadeBy >>> 8 === 3 && externalFileAttributes >>> 28 === 0o12

const packedBytes = async (zip: ZipFile, entry: Entry) => {
  const stream = await promisify<Entry, { decodeFileData: false }, Readable>((each, how, done) =>
    zip.openReadStream(each, how, done),
  )(entry, { decodeFileData: false })
  return Buffer.concat((await stream.toArray()) as Array<Buffer>)
}

const inflate = (packed: Buffer, maxBytes: number, tooMuch: RefusedZip) => {
  try {
    return inflateRawSync(packed, { maxOutputLength: Math.max(maxBytes, 1) })
  } catch (error) {
    throw (error as NodeJS.ErrnoException).code === "ERR_BUFFER_TOO_LARGE" ? tooMuch : broken
  }
}

/**
 * Unpacks a file. Counts the bytes and checks them, because the sizes in a zip can be wrong. It is synchronous, because
 * the whole process shares Node's few threads for asynchronous work.
 */
const unpack = async (zip: ZipFile, entry: Entry, maxBytes: number, tooMuch: RefusedZip) => {
  if ((entry.generalPurposeBitFlag & 1) !== 0 || ![0, 8].includes(entry.compressionMethod))
    throw fault("is encrypted, or uses an unsupported compression")
  const packed = await packedBytes(zip, entry)
  const content = entry.compressionMethod === 0 ? packed : inflate(packed, maxBytes, tooMuch)
  if (content.length > maxBytes) throw tooMuch
  if (crc32(content) !== entry.crc32 || content.length !== entry.uncompressedSize) throw broken
  // In memory of its own, which can be transferred to another thread.
  return new Uint8Array(content)
}

/**
 * The markdown pages of a zip, each unpacked when it is asked for. Other files are not unpacked and count toward no
 * limit but that of the entries. Throws when the zip is refused: `refusalOf`.
 */
async function* readPages(bytes: Uint8Array): AsyncGenerator<ZippedPage> {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const zip = await open(buffer, { lazyEntries: true, autoClose: false, decodeStrings: false })
  const pages = new Map<string, Entry>()
  const folders = new Set<string>()
  let entries = 0
  for await (const entry of entriesOf(zip)) {
    const path = pathOf(entry)
    if (++entries > entriesPerPage * limits.pages) throw fault("has too many entries")
    const top = path.includes("/") ? path.slice(0, path.indexOf("/")) : ""
    if (path !== "" && !isHidden(top || path) && folders.size < 2) folders.add(top)
    if (!isMarkdown(path) || isLink(entry)) continue
    if (isForbidden(path)) throw fault(`has a path that is not allowed: ${JSON.stringify(path.slice(0, 100))}`)
    if (isHidden(path)) continue
    if (pages.has(path)) throw fault(`has a file twice: ${JSON.stringify(path.slice(0, 100))}`)
    pages.set(path, entry)
    if (pages.size > limits.pages) throw fault(`has more than ${limits.pages.toLocaleString("en")} files`)
  }
  if (pages.size === 0) throw fault("has no .md, .mdx or .markdown files")
  const [folder = ""] = folders
  const skipped = folders.size === 1 && isArchiveFolder(folder) ? folder.length + 1 : 0
  let left = limits.unpackedBytes
  for (const [path, entry] of pages) {
    const content =
      left < limits.pageBytes
        ? await unpack(zip, entry, left, tooLarge)
        : await unpack(zip, entry, limits.pageBytes, tooLargePage(path))
    left -= content.length
    const { matter } = splitFrontMatter(textOf(content.subarray(0, maxMatterBytes)))
    yield { path: path.slice(skipped), slug: textsOf(matter)("slug"), content }
  }
}

/** Why a zip is refused, from what reading it threw. */
const refusalOf = (error: unknown): string => (error instanceof RefusedZip ? error : broken).message
