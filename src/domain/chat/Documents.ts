import type { Effect } from "effect"
import { Context } from "effect"
import type { Page } from "./DocsPassages.ts"
import type { UnprocessableContent } from "../Errors.ts"

/** The pages of a zip. */
export interface Archive {
  /** The digest of the zip's bytes: two archives of one version are the same. */
  readonly version: string
  readonly pages: ReadonlyArray<Page>
}

/** A markdown file that tells a model how to do something. */
export interface Skill {
  readonly name: string
  readonly description: string
  readonly markdown: string
}

/** A url, and the org that sent it; `undefined`: a caller without a key. */
export interface Source {
  readonly url: string
  readonly orgId: string | undefined
}

/** Documentation behind urls that callers gave (contract 8). A failure is a sentence that names the url. */
export class Documents extends Context.Service<
  Documents,
  {
    readonly archive: (source: Source) => Effect.Effect<Archive, UnprocessableContent>
    readonly skill: (source: Source) => Effect.Effect<Skill, UnprocessableContent>
  }
>()("gatehouse/domain/Documents") {}
