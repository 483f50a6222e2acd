import { DateTime, Duration, Schema } from "effect"
import { DocumentUrl } from "./Chat.ts"
import { zipInWords } from "./Documents.ts"
import { Id, ProjectId, Text, time, Timestamp } from "../Schemas.ts"
import { urlFault } from "../callableUrls.ts"

/** The placeholders of `docsZipUrl`, and examples of their values. */
const placeholders = {
  "{deployment}": "01KAHBMKZ3D2X7S5QN8W4V6R9T",
  "{sha}": "6dcb09b5b57875f334f61aebed695e2e4193db5e",
}
const fill = (url: string, values: typeof placeholders) =>
  url.replaceAll(/\{deployment\}|\{sha\}/g, (name) => encodeURIComponent(values[name as "{sha}"]))

const zipUrlFault = (url: string) => {
  const filled = fill(url, placeholders)
  return /\{\w*\}/.test(filled)
    ? "must have no placeholders but {deployment} and {sha}"
    : urlFault(filled, { httpsOnly: false })
}

const ZipUrl = Text.check(Schema.makeFilter(zipUrlFault, { toJsonSchema: () => ({ maxLength: 2048 }) })).annotate({
  description:
    `The URL of ${zipInWords}. {deployment} ` +
    "stands for the id of the current deployment, and {sha} for its commit; such a URL is fetched from the first current deployment on.",
  examples: ["https://docs.example.com/docs.zip", "https://artifacts.example.com/docs-{sha}.zip"],
})

const settings = {
  docsZipUrl: ZipUrl,
  docsUrl: Schema.NullOr(DocumentUrl).annotate({
    description:
      "The address of the documentation's site, to which slugs are added. null: sources of answers are slugs.",
    examples: ["https://docs.example.com/"],
  }),
  public: Schema.Boolean.annotate({
    description: "Whether anyone may read the stored documentation: its llms.txt, and its MCP server.",
    examples: [false],
  }),
  keepQuestions: Schema.Boolean.annotate({
    description: "Whether the questions that readers ask with the project's keys are kept.",
    examples: [true],
  }),
}

/** The documentation of a project, as its owner sets it. */
export const PutProjectDocs = Schema.Struct({
  docsZipUrl: settings.docsZipUrl,
  docsUrl: Schema.optionalKey(settings.docsUrl),
  public: Schema.optionalKey(settings.public),
  keepQuestions: Schema.optionalKey(settings.keepQuestions),
}).annotate({ identifier: "PutProjectDocs" })
export type PutProjectDocs = typeof PutProjectDocs.Type

/** The documentation of a project, and what is stored of it. */
export const ProjectDocs = Schema.Struct({
  projectId: ProjectId,
  ...settings,
  updatedAt: time("When the settings last changed, or questions were erased."),
  state: Schema.Literals(["waiting", "stored", "failed"]).annotate({
    description:
      "waiting: the documentation of the current deployment will be fetched. stored: it is stored. failed: it could not be " +
      "fetched, and is not tried again until the next current deployment or change. Until it is stored, chats use what is.",
  }),
  stored: Schema.NullOr(
    Schema.Struct({
      deploymentId: Schema.NullOr(Id).annotate({
        description: "The deployment that was current. null: there was none.",
      }),
      pages: Schema.Int.annotate({ description: "The number of pages that are stored.", examples: [214] }),
      bytes: Schema.Int.annotate({ description: "The size of the pages.", examples: [1_482_301] }),
      at: time("When it was stored."),
    }),
  ).annotate({ description: "What is stored. null: nothing yet." }),
  failure: Schema.NullOr(
    Schema.Struct({
      error: Schema.String.annotate({
        description: "What failed.",
        examples: ["docsZipUrl: https://docs.example.com/docs.zip was answered with the status 404."],
      }),
      attempts: Schema.Int.annotate({ description: "Failed attempts since the last change of what is fetched." }),
      at: time("When the last attempt failed."),
      nextAt: Schema.NullOr(Timestamp).annotate({ description: "When it is tried again. null: it is not." }),
    }),
  ).annotate({ description: "Why the documentation of the current deployment is not stored. null: nothing failed." }),
}).annotate({ identifier: "ProjectDocs" })
export type ProjectDocs = typeof ProjectDocs.Type

/** One fetched zip in the database. */
export interface StoredEdition {
  /** The id of its pages. */
  readonly edition: string
  /** The digest of the zip. */
  readonly digest: string
  /** What it was fetched for. */
  readonly target: string
  readonly deploymentId: string | null
  readonly pages: number
  readonly bytes: number
  /** The length of all texts, which is less than `bytes` beyond ASCII. */
  readonly characters: number
  readonly at: DateTime.Utc
}

export interface FetchFailure {
  readonly target: string
  readonly error: string
  readonly attempts: number
  readonly at: DateTime.Utc
}

/** The documentation of a project as it is stored, with the project's current deployment. */
export interface DocsRecord {
  readonly orgId: string
  readonly projectId: string
  readonly projectName: string
  /** `null`: the owner removed the documentation, and its rows are being erased. */
  readonly docsZipUrl: string | null
  readonly docsUrl: string | null
  readonly isPublic: boolean
  readonly keepQuestions: boolean
  /** How often the owner has set it. */
  readonly revision: number
  readonly updatedAt: DateTime.Utc
  readonly deployment: { readonly id: string; readonly sha: string } | null
  readonly stored: StoredEdition | null
  readonly failure: FetchFailure | null
  /** Until when a worker fetches it. */
  readonly leasedUntil: DateTime.Utc | null
  /** Since when pages may be stored that nobody will read; `null`: there are none. */
  readonly uncleanSince: DateTime.Utc | null
}

/** The waits after each failed fetch. After the last one, only a new target is fetched. */
export const fetchRetryDelays = ["10 seconds", "1 minute", "5 minutes", "15 minutes", "1 hour", "3 hours"] as const

/** What is to be fetched: each setting of the owner, and each current deployment, once. */
export const targetOf = ({ deployment, revision }: Pick<DocsRecord, "deployment" | "revision">) =>
  `${revision}:${deployment?.id ?? ""}`

/** The URL to fetch; `undefined` while there is none. */
export const zipUrlOf = ({ deployment, docsZipUrl }: DocsRecord): string | undefined => {
  if (docsZipUrl === null) return undefined
  if (deployment !== null) return fill(docsZipUrl, { "{deployment}": deployment.id, "{sha}": deployment.sha })
  return fill(docsZipUrl, placeholders) === docsZipUrl ? docsZipUrl : undefined
}

const failureOf = (record: DocsRecord) => (record.failure?.target === targetOf(record) ? record.failure : null)

const retryAt = ({ at, attempts }: FetchFailure) => {
  const delay = fetchRetryDelays[attempts - 1]
  return delay === undefined ? null : DateTime.addDuration(at, Duration.fromInputUnsafe(delay))
}

/** Whether the documentation is to be fetched now. */
export const isToFetch = (record: DocsRecord, now: DateTime.Utc): boolean => {
  if (record.stored?.target === targetOf(record) || zipUrlOf(record) === undefined) return false
  const failure = failureOf(record)
  if (failure === null) return true
  const next = retryAt(failure)
  return next !== null && DateTime.isLessThanOrEqualTo(next, now)
}

/** How long replaced pages stay, for chats that have begun to read them. */
const replacedTime = Duration.minutes(1)

/** Whether a worker has something to do: the documentation is to be fetched, or rows of it are to be erased. */
export const isDue = (record: DocsRecord, now: DateTime.Utc): boolean => {
  const { docsZipUrl, leasedUntil, uncleanSince } = record
  if (leasedUntil !== null && DateTime.isGreaterThan(leasedUntil, now)) return false
  const isUnclean =
    uncleanSince !== null && DateTime.isLessThanOrEqualTo(DateTime.addDuration(uncleanSince, replacedTime), now)
  return docsZipUrl === null || isUnclean || isToFetch(record, now)
}

/** The documentation of a project as its owner reads it. */
export const toProjectDocs = (record: DocsRecord & { readonly docsZipUrl: string }): ProjectDocs => {
  const { docsUrl, docsZipUrl, isPublic, keepQuestions, projectId, stored, updatedAt } = record
  const failure = failureOf(record)
  const nextAt = failure && retryAt(failure)
  const isStored = stored?.target === targetOf(record)
  return {
    projectId,
    docsZipUrl,
    docsUrl,
    public: isPublic,
    keepQuestions,
    updatedAt,
    state: isStored ? "stored" : failure !== null && nextAt === null ? "failed" : "waiting",
    stored: stored && { deploymentId: stored.deploymentId, pages: stored.pages, bytes: stored.bytes, at: stored.at },
    failure: failure && { error: failure.error, attempts: failure.attempts, at: failure.at, nextAt },
  }
}
