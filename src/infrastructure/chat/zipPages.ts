import { Data, Effect, Stream } from "effect"
import { Zip } from "effect/encoding"
import { limits } from "../../domain/chat/Chat.ts"
import type { Page } from "../../domain/chat/DocsPassages.ts"

/** Limit of the unpacked bytes of all files of a zip (contract 6). */
const maxUnpackedBytes = 50 * 1024 * 1024
/** Limit of the entries of a zip, folders included. */
const maxEntries = 5 * limits.pages
/** Limit of the characters of a path. */
const maxPathLength = 512
/** The decoder gets slices of this size, so that other work runs in between. */
const sliceBytes = 64 * 1024

/** The zip is refused. `message` follows the URL in a sentence. */
export class ZipFault extends Data.TaggedError("ZipFault")<{ readonly message: string }> {}
const fault = (message: string) => new ZipFault({ message })

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

const slices = (bytes: Uint8Array) =>
  Array.from({ length: Math.ceil(bytes.length / sliceBytes) }, (_, at) =>
    bytes.subarray(at * sliceBytes, (at + 1) * sliceBytes),
  )

/**
 * Returns the markdown pages of a zip. Fails with `ZipFault`. It does not trust the sizes in the zip: it counts bytes while it
 * unpacks, and stops at the limit.
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
        if (isForbidden(path))
          return yield* fault(`has a path that is not allowed: ${JSON.stringify(path.slice(0, 100))}`)
        if (header.type === "File" && ++files > limits.pages) return yield* fault("has more than 2,000 files")
        if (paths.has(path)) return yield* fault(`has a file twice: ${JSON.stringify(path.slice(0, 100))}`)
        paths.add(path)
        const isPage = header.type === "File" && isMarkdown(path) && !isHidden(path)
        const chunks: Array<Uint8Array> = []
        // Other files count, too: they are unpacked to find their end.
        yield* Stream.runForEach(body, (chunk) => {
          unpacked += chunk.length
          if (unpacked > maxUnpackedBytes) return fault("is larger than 50 MiB unpacked")
          if (isPage) chunks.push(chunk)
          return Effect.void
        })
        const slug = slugOf(path)
        if (isPage && !pages.has(slug)) {
          pages.set(slug, { slug, markdown: new TextDecoder().decode(Buffer.concat(chunks)) })
        }
      }),
    ),
    Effect.catchTag("ZipError", ({ kind }) =>
      fault(
        kind === "Unsupported" ? "is encrypted, or uses an unsupported compression" : "is not a zip, or is damaged",
      ),
    ),
  )
  if (pages.size === 0) return yield* fault("has no .md or .mdx files")
  return [...pages.values()]
})
