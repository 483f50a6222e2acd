import type { Effect } from "effect"
import { Context } from "effect"
import type { Page } from "./DocsPassages.ts"
import type { UnprocessableContent } from "../Errors.ts"

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

/** A URL of a request, and the org of the caller; `undefined` without a key. */
export interface Source {
  readonly url: string
  readonly orgId: string | undefined
}

/** Fetches documentation from URLs of requests. An error is a sentence with the URL. */
export class Documents extends Context.Service<
  Documents,
  {
    readonly archive: (source: Source) => Effect.Effect<Archive, UnprocessableContent>
    readonly skill: (source: Source) => Effect.Effect<Skill, UnprocessableContent>
  }
>()("gatehouse/domain/Documents") {}
