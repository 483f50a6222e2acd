import { Context, DateTime, Duration, Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { descriptionOf, type Page, titleOf } from "./DocsPassages.ts"
import { Documents } from "./Documents.ts"
import { faultPlace } from "../Errors.ts"
import { cut } from "../Schemas.ts"
import { type DocsRecord, isDue, isToFetch, targetOf, zipUrlOf } from "./ProjectDocs.ts"
import { type DocsOf, type LeasedDocs, type NewPage, ProjectDocsRepository } from "./ProjectDocsRepository.ts"
import { type InWork, workThrough } from "../workThrough.ts"

/** How long a worker holds a lease: longer than a fetch and the writes of 2,000 pages take. */
const leaseTime = Duration.minutes(3)
/** Limit of the work under a lease, so that it ends before the lease. */
const workTime = Duration.minutes(2)
/** Rows of one read. */
const scanBatchSize = 500
/** The most rows that are read to find what is due. */
const maxScanned = 5_000
/** Projects that a replica fetches at once, and those of one org among them: a slow host delays its org alone. */
const maxFetches = 4
const maxFetchesOfOrg = 2
/** How often the documentation of projects is looked through. */
export const docsInterval = "5 seconds"
/** Pages that one statement erases. */
const cleanBatchSize = 500
/** The characters of the pages that one statement adds. */
const maxAddedLength = 1024 * 1024
const maxAddedPages = 200

const oneLine = (text: string, length: number) =>
  cut(text.replaceAll("\0", "\uFFFD").replaceAll(/\s+/g, " ").trim().toWellFormed(), length)

/** A page as the database can store it: without NUL characters. */
const toNewPage = ({ markdown, slug }: Page): NewPage => {
  const page = { slug: slug.replaceAll("\0", "").toWellFormed(), markdown: markdown.replaceAll("\0", "\uFFFD") }
  return { ...page, title: oneLine(titleOf(page), 200), description: oneLine(descriptionOf(page), 300) }
}

/** Groups pages into batches of some size. */
const batchesOf = (pages: ReadonlyArray<Page>) => {
  const batches: Array<Array<Page>> = []
  let left = 0
  for (const page of pages) {
    const last = batches.at(-1)
    if (last === undefined || last.length >= maxAddedPages || page.markdown.length > left) {
      batches.push([page])
      left = maxAddedLength
    } else last.push(page)
    left -= page.markdown.length
  }
  return batches
}

/** A text whose URLs have no query and no credentials, for the log. */
const withoutSecrets = (text: string) => text.replaceAll(/[?#]\S*/g, "").replaceAll(/\/\/[^/\s]*@/g, "//")

const ourFault = "The documentation could not be stored: an error of the service, which its log has."

const encoder = new TextEncoder()
const sizeOf = ({ description, markdown, slug, title }: NewPage) => {
  const texts = [slug, title, description, markdown]
  return {
    characters: texts.reduce((sum, text) => sum + text.length, 0),
    bytes: texts.reduce((sum, text) => sum + encoder.encode(text).length, 0),
  }
}

/** Fetches the documentation of projects in the background. */
export class DocsFetcher extends Context.Service<DocsFetcher>()("gatehouse/domain/DocsFetcher", {
  make: Effect.gen(function* () {
    const repository = yield* ProjectDocsRepository
    const documents = yield* Documents
    const random = yield* SecureRandom.SecureRandom
    /** Where the next pass continues. */
    let last: DocsOf | undefined

    /** The next due documentation, of several orgs. */
    const findDue = Effect.fnUntraced(function* (atMost: number, inWork: InWork) {
      const due: Array<DocsRecord> = []
      const ofOrg = new Map(inWork)
      for (let scanned = 0; scanned < maxScanned && due.length < atMost; scanned += scanBatchSize) {
        const records = yield* repository.scan(last, scanBatchSize)
        const now = yield* DateTime.now
        for (const record of records) {
          if (due.length === atMost) break
          last = record
          const taken = ofOrg.get(record.orgId) ?? 0
          if (taken >= maxFetchesOfOrg || !isDue(record, now)) continue
          ofOrg.set(record.orgId, taken + 1)
          due.push(record)
        }
        if (records.length < scanBatchSize && due.length < atMost) {
          last = undefined
          break
        }
      }
      return due
    })

    /** Claims what is due. Another worker may have taken it. */
    const take = Effect.fnUntraced(function* (atMost: number, inWork: InWork) {
      const claimed: Array<readonly [LeasedDocs, DocsRecord]> = []
      for (const record of yield* findDue(atMost, inWork)) {
        const docs = { orgId: record.orgId, projectId: record.projectId, lease: yield* random.ulid }
        const now = yield* DateTime.now
        if (yield* repository.claim(docs, record.revision, now, DateTime.addDuration(now, leaseTime)))
          claimed.push([docs, record])
      }
      return claimed
    })

    /** Erases rows that nobody reads. Returns whether all are erased. */
    const clean = Effect.fnUntraced(function* (docs: LeasedDocs) {
      while ((yield* repository.clean(docs, cleanBatchSize)) >= cleanBatchSize) yield* Effect.sleep("50 millis")
    })

    /** Adds the pages of a zip. Returns their size; `undefined` without the lease. */
    const addPages = Effect.fnUntraced(function* (docs: LeasedDocs, pages: ReadonlyArray<Page>) {
      let [bytes, characters] = [0, 0]
      for (const batch of batchesOf(pages)) {
        // Other requests continue between the pages.
        const added = yield* Effect.forEach(batch, (page) => Effect.as(Effect.yieldNow, toNewPage(page)))
        for (const size of added.map(sizeOf)) [bytes, characters] = [bytes + size.bytes, characters + size.characters]
        if (!(yield* repository.addPages(docs, added))) return undefined
      }
      return { pages: pages.length, bytes, characters }
    })

    const store = Effect.fnUntraced(function* (docs: LeasedDocs, record: DocsRecord, url: string) {
      yield* clean(docs)
      const archive = yield* documents.currentArchive({ url, orgId: docs.orgId })
      const stored = {
        target: targetOf(record),
        deploymentId: record.deployment?.id ?? null,
        at: yield* DateTime.now,
      }
      if (record.stored?.digest === archive.version) {
        return yield* repository.store(docs, { ...record.stored, ...stored })
      }
      const size = yield* addPages(docs, archive.pages)
      if (size === undefined) return
      yield* repository.store(docs, { edition: docs.lease, digest: archive.version, ...stored, ...size })
    })

    const fail = Effect.fnUntraced(function* (docs: LeasedDocs, record: DocsRecord, error: string) {
      const at = yield* DateTime.now
      const target = targetOf(record)
      const before = record.failure?.target === target ? record.failure.attempts : 0
      const failure = { target, error: cut(error, 1_000), attempts: before + 1, at }
      yield* Effect.logInfo(`Documentation is not fetched: ${withoutSecrets(failure.error)}`).pipe(
        Effect.annotateLogs({ attempts: failure.attempts }),
      )
      yield* repository.fail(docs, failure)
    })

    const work = Effect.fnUntraced(function* ([docs, record]: readonly [LeasedDocs, DocsRecord]) {
      const url = isToFetch(record, yield* DateTime.now) ? zipUrlOf(record) : undefined
      if (url === undefined) return yield* Effect.andThen(clean(docs), repository.release(docs))
      yield* store(docs, record, url).pipe(
        Effect.timeoutOrElse({
          duration: workTime,
          orElse: () => fail(docs, record, "The documentation could not be stored in time."),
        }),
        Effect.catch(({ error }) => fail(docs, record, error)),
        Effect.catchDefect((fault) =>
          Effect.andThen(
            Effect.logError("Documentation is not stored", faultPlace(fault)),
            fail(docs, record, ourFault),
          ),
        ),
      )
    })

    return {
      /**
       * Goes through the documentation of all orgs: fetches and stores what is due, and erases what was removed.
       * Returns whether it did anything.
       */
      pass: workThrough({
        max: maxFetches,
        interval: docsInterval,
        ownerOf: ([{ orgId }]) => orgId,
        take,
        work: ([docs, record]) =>
          work([docs, record]).pipe(
            Effect.catch(({ error }) => Effect.logWarning(`Documentation is not stored yet: ${error}`)),
            Effect.catchDefect((fault) => Effect.logError("Documentation is not stored", faultPlace(fault))),
            Effect.annotateLogs({ orgId: docs.orgId, projectId: docs.projectId }),
          ),
      }).pipe(
        Effect.map((count) => count > 0),
        Effect.withSpan("DocsFetcher.pass"),
      ),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
