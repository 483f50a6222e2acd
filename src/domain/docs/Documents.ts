import { Context, type Effect } from "effect"
import type { Unavailable, UnprocessableContent } from "../Errors.ts"
import type { Page } from "./DocsPassages.ts"

const MiB = 1024 * 1024

/** The limits of a zip file. A page is copied whole by the main thread, and the database sends it as one row. */
export const zipLimits = { bytes: 20 * MiB, unpackedBytes: 50 * MiB, pageBytes: 4 * MiB, pages: 2_000 }
const { bytes, pageBytes, pages, unpackedBytes } = zipLimits

/** What a zip file may be, as descriptions say it. */
export const zipInWords =
  `a zip with .md and .mdx files: at most ${bytes / MiB} MiB, ${unpackedBytes / MiB} MiB unpacked, ` +
  `${pageBytes / MiB} MiB a page and ${pages.toLocaleString("en")} files`

/** The pages of a zip file. */
export interface Archive {
  /** The digest of the zip file. */
  readonly version: string
  readonly pages: ReadonlyArray<Page>
}

/** A markdown file with instructions for the model. */
export interface Skill {
  readonly name: string
  readonly description: string
  readonly markdown: string
}

/** A URL of a request. */
export interface Source {
  readonly url: string
  /** The org of the caller; `undefined` without a key. */
  readonly orgId: string | undefined
  /** Whose share of the fetches it uses: the org, or the client without a key. Default: the org. */
  readonly owner?: string
}

/** Fetches documentation from URLs of requests. Owners share the fetches. An error is a sentence with the URL. */
export class Documents extends Context.Service<
  Documents,
  {
    readonly archive: (source: Source) => Effect.Effect<Archive, UnprocessableContent | Unavailable>
    /** The same, from its server and not from the cache, which it does not change either. */
    readonly currentArchive: (source: Source) => Effect.Effect<Archive, UnprocessableContent | Unavailable>
    readonly skill: (source: Source) => Effect.Effect<Skill, UnprocessableContent | Unavailable>
  }
>()("gatehouse/domain/Documents") {}
