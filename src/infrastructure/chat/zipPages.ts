import { Data, Effect } from "effect"
import { on } from "node:events"
import type { Readable } from "node:stream"
import { promisify } from "node:util"
import { crc32 } from "node:zlib"
import { type Entry, fromBuffer, type Options, type ZipFile } from "yauzl"
import { limits } from "../../domain/chat/Chat.ts"
import type { Page } from "../../domain/chat/DocsPassages.ts"

/** Limit of the unpacked bytes of all pages of a zip (contract 6). */
const maxUnpackedBytes = 50 * 1024 * 1024
/** Limit of the entries of a zip, other files and folders included. */
const maxZipEntries = 50 * limits.pages
/** Limit of the characters of a path. */
const maxPathLength = 512

/** The zip is refused. `message` follows the URL in a sentence. */
export class ZipFault extends Data.TaggedError("ZipFault")<{ readonly message: string }> {}
const fault = (message: string) => new ZipFault({ message })
const broken = fault("is not a zip, or is damaged")

const isMarkdown = (path: string) => /\.mdx?$/i.test(path)
/** Files of macOS and of version control. */
const isHidden = (path: string) => path.split("/").some((part) => part.startsWith(".") || part === "__MACOSX")

/** Nothing is written to disk, but a path that leaves its folder cannot be a slug. */
const isForbidden = (path: string) =>
  path.length > maxPathLength ||
  /^\/|\\|^[A-Za-z]:|\p{Cc}/u.test(path) ||
  path.split("/").some((part) => part === ".." || part === ".")

/** The slug of a path: `docs/guide/index.md` is the page `docs/guide`. */
const slugOf = (path: string) => {
  const name = path.replace(/\.mdx?$/i, "").replace(/\/index$/i, "")
  return name === "" ? "index" : name
}

const open = promisify<Buffer, Options, ZipFile>(fromBuffer)

/** The entries of the central directory. A file that was removed from it is not read, even if its bytes are still there. */
async function* entriesOf(zip: ZipFile) {
  const entries = on(zip, "entry", { close: ["end"] }) as AsyncIterable<[Entry]>
  zip.readEntry()
  for await (const [entry] of entries) {
    yield entry
    zip.readEntry()
  }
}

/** The path of an entry. Zips without the flag for UTF-8 often contain it nevertheless. */
const pathOf = ({ fileName }: Entry) => new TextDecoder().decode(fileName as unknown as Buffer)

/** Unpacks a file. Counts the bytes and checks them, because the sizes in a zip can be wrong. */
const unpack = async (zip: ZipFile, entry: Entry, maxBytes: number) => {
  if ((entry.generalPurposeBitFlag & 1) !== 0 || ![0, 8].includes(entry.compressionMethod))
    throw fault("is encrypted, or uses an unsupported compression")
  const stream = await promisify<Entry, Readable>((each, done) => zip.openReadStream(each, done))(entry)
  const chunks: Array<Buffer> = []
  let bytes = 0
  let sum = 0
  // Leaving the loop early destroys the stream.
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxBytes) throw fault("is larger than 50 MiB unpacked")
    sum = crc32(chunk, sum)
    chunks.push(chunk)
  }
  if (sum !== entry.crc32 || bytes !== entry.uncompressedSize) throw broken
  return Buffer.concat(chunks)
}

const readPages = async (bytes: Uint8Array, signal: AbortSignal): Promise<ReadonlyArray<Page>> => {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const zip = await open(buffer, { lazyEntries: true, autoClose: false, decodeStrings: false })
  const pages = new Map<string, Page>()
  const paths = new Set<string>()
  let entries = 0
  let left = maxUnpackedBytes
  for await (const entry of entriesOf(zip)) {
    signal.throwIfAborted()
    const path = pathOf(entry)
    if (++entries > maxZipEntries) throw fault("has too many entries")
    if (isForbidden(path)) throw fault(`has a path that is not allowed: ${JSON.stringify(path.slice(0, 100))}`)
    if (!isMarkdown(path) || isHidden(path)) continue
    if (paths.has(path)) throw fault(`has a file twice: ${JSON.stringify(path.slice(0, 100))}`)
    paths.add(path)
    if (paths.size > limits.pages) throw fault("has more than 2,000 files")
    const content = await unpack(zip, entry, left)
    left -= content.length
    const slug = slugOf(path)
    if (!pages.has(slug)) pages.set(slug, { slug, markdown: new TextDecoder().decode(content) })
  }
  if (pages.size === 0) throw fault("has no .md or .mdx files")
  return [...pages.values()]
}

/** Returns the markdown pages of a zip. Other files are not unpacked and count toward no limit but that of the entries. */
export const zipPages = Effect.fn("Documents.unpack")((bytes: Uint8Array) =>
  Effect.tryPromise({
    try: (signal) => readPages(bytes, signal),
    catch: (error) => (error instanceof ZipFault ? error : broken),
  }),
)
