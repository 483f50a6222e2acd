import { Data, Effect, Stream } from "effect"
import { Zip } from "effect/encoding"
import { limits } from "../../domain/chat/Chat.ts"
import type { Page } from "../../domain/chat/DocsPassages.ts"

/** How many bytes a zip may have unpacked, all of its files together (contract 6). */
const maxUnpacked = 50 * 1024 * 1024
/** How many entries a zip may have, folders included. */
const maxEntries = 5 * limits.pages
/** How many characters the path of a file may have. */
const maxPath = 512
/** The decoder is fed in slices, so that it takes turns with everything else. */
const slice = 64 * 1024

/** The zip is not one that is read; `message` is what is wrong with it, to be put behind its name. */
export class ZipFault extends Data.TaggedError("ZipFault")<{ readonly message: string }> {}
const fault = (message: string) => new ZipFault({ message })

const isMarkdown = (path: string) => /\.mdx?$/i.test(path)
/** What macOS and version control put beside the files. */
const isHidden = (path: string) => path.split("/").some((part) => part.startsWith(".") || part === "__MACOSX")

/** Nothing is written to disk, but a path that leaves its folder is a lie all the same, and no slug. */
const isTrick = (path: string) =>
  path.length > maxPath ||
  /^\/|\\|^[A-Za-z]:|\p{Cc}/u.test(path) ||
  path.split("/").some((part) => part === ".." || part === ".")

/** `docs/guide/index.md` is the page `docs/guide`. */
const slugOf = (path: string) => {
  const name = path.replace(/\.mdx?$/i, "").replace(/\/index$/i, "")
  return name === "" ? "index" : name
}

const slices = (bytes: Uint8Array) =>
  Array.from({ length: Math.ceil(bytes.length / slice) }, (_, at) => bytes.subarray(at * slice, (at + 1) * slice))

/**
 * The markdown pages of a zip, by their paths. What a zip says of its own sizes is not believed: bytes are counted as
 * they are unpacked, and unpacking ends with the first that is too many.
 */
export const zipPages = Effect.fn("Documents.unpack")(function* (bytes: Uint8Array) {
  const pages = new Map<string, Page>()
  const paths = new Set<string>()
  let entries = 0
  let files = 0
  let unpacked = 0

  yield* Stream.fromIterable(slices(bytes)).pipe(
    Stream.rechunk(1),
    Stream.pipeThroughChannel(Zip.decode()),
    Stream.runForEach(
      Effect.fnUntraced(function* ({ header, body }) {
        const { path } = header
        if (++entries > maxEntries) return yield* fault("has too many entries")
        if (isTrick(path)) return yield* fault(`has a path that is not allowed: ${JSON.stringify(path.slice(0, 100))}`)
        if (header.type === "File" && ++files > limits.pages) return yield* fault("has more than 2,000 files")
        if (paths.has(path)) return yield* fault(`has a file twice: ${JSON.stringify(path.slice(0, 100))}`)
        paths.add(path)
        const wanted = header.type === "File" && isMarkdown(path) && !isHidden(path)
        const chunks: Array<Uint8Array> = []
        // What is not wanted is unpacked too, to find its end: so it counts.
        yield* Stream.runForEach(body, (chunk) => {
          unpacked += chunk.length
          if (unpacked > maxUnpacked) return fault("is larger than 50 MiB unpacked")
          if (wanted) chunks.push(chunk)
          return Effect.void
        })
        const slug = slugOf(path)
        if (wanted && !pages.has(slug)) {
          pages.set(slug, { slug, markdown: new TextDecoder().decode(Buffer.concat(chunks)) })
        }
      }),
    ),
    Effect.catchTag("ZipError", ({ kind }) =>
      fault(
        kind === "Unsupported" ? "is encrypted, or packed in a way that is not read" : "is no zip, or a broken one",
      ),
    ),
  )
  if (pages.size === 0) return yield* fault("has no .md or .mdx files")
  return [...pages.values()]
})
