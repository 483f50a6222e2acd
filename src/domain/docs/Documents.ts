import { Context, Effect } from "effect"
import type { Unavailable, UnprocessableContent } from "../Errors.ts"
import type { Page } from "./DocsPassages.ts"

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

/** The memory for the request bodies of chats. */
export const ChatBodyMemory = Context.Reference<{
  /** The bytes of all bodies together, from before they are read until their documentation is indexed. */
  readonly bytes: number
  /** Returns the memory of a large body to the operating system. */
  readonly release: Effect.Effect<void>
}>("gatehouse/domain/docs/ChatBodyMemory", {
  defaultValue: () => ({ bytes: 16 * 1024 * 1024, release: Effect.void }),
})
