import type { Entry } from "./world.ts"

/** One try of an operation: a request to a replica, and what came back. Times are true times in milliseconds. */
export interface Try {
  readonly replica: string
  readonly start: number
  readonly end: number
  /** `undefined`: no answer came. */
  readonly status: number | undefined
}

/** A try of a request with an idempotency key. */
export interface KeyedTry extends Try {
  /** What it was answered with success. */
  readonly answer: string | undefined
  /** Whether it was another request with the same key. */
  readonly isOther: boolean
}

/** The fields of answers that clients and oracles read, of all operations. */
export interface Body {
  readonly id: string
  readonly key: string
  readonly alertId?: string
  readonly orgId: string
  readonly projectId: string
  readonly webhook_endpoint_id: string
  readonly job_id: string
  readonly schedule_id: string
  readonly url: string
  readonly deployments?: ReadonlyArray<{ readonly id: string; readonly runId: string }>
  readonly event_id: string
  readonly event_ids?: ReadonlyArray<string>
  readonly job_ids?: ReadonlyArray<string>
  readonly created?: boolean
  readonly status?: string
  readonly token?: string
  readonly keys?: ReadonlyArray<{ readonly kid: string; readonly x: string }>
  readonly imported?: ReadonlyArray<{ readonly index: number; readonly id: string }>
  readonly existing?: ReadonlyArray<{ readonly index: number; readonly id: string }>
  readonly alerts?: ReadonlyArray<{ readonly name: string }>
  readonly entries?: ReadonlyArray<{ readonly id: string; readonly at: string }>
  readonly sweep_id?: string | null
  readonly resend_id?: string | null
  readonly keyId?: string
  readonly csrfToken?: string
  readonly person?: { readonly subject: string; readonly role: string } | null
  readonly jobs?: ReadonlyArray<{
    readonly job_id: string
    readonly attempt: number
    readonly input?: { readonly mark?: string }
    readonly workflow?: string
    readonly success?: boolean
    readonly code?: string
    readonly unique_key?: string | null
  }>
  readonly events?: ReadonlyArray<{ readonly event_id: string }>
  readonly deliveries?: ReadonlyArray<{ readonly delivery_id: string; readonly webhook_endpoint_id: string }>
  readonly error?: string
  readonly message?: string
}

/** What a client did: an operation with all its tries. */
export interface Done {
  readonly kind: string
  readonly tenant: string
  /** What the client asked for. */
  readonly args: Readonly<Record<string, unknown>>
  readonly start: number
  /** When the client had the last answer; `Infinity` if the operation may still take effect. */
  readonly end: number
  readonly status: number | undefined
  /** Has the fields of the operation when it succeeded. */
  readonly body: Body
  readonly tries: ReadonlyArray<Try>
  /** All tries with its idempotency key, also those of others that sent it; none if it has no key. */
  readonly keyed: ReadonlyArray<KeyedTry>
}

/** A delivery as a receiver got it. */
export interface Received {
  readonly at: number
  readonly from: string
  readonly url: string
  /** The id of the delivery, by whatever name of its header. */
  readonly id: string | undefined
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  readonly manner: string
  /** The status that was sent; `undefined` if none was. */
  readonly status: number | undefined
}

/** Something that went wrong on purpose, and for how long. */
export interface Fault {
  readonly kind: string
  readonly replica: string | undefined
  readonly start: number
  readonly end: number
}

/** All that an oracle knows of a run. */
export interface History {
  /** What replicas logged as errors. */
  readonly errors: ReadonlyArray<Entry>
  /** What replicas logged of statements that the database did not answer in time. */
  readonly unanswered: ReadonlyArray<Entry>
  readonly done: ReadonlyArray<Done>
  readonly received: ReadonlyArray<Received>
  readonly faults: ReadonlyArray<Fault>
  /** How long the service keeps records. */
  readonly retentionDays: number
  /** The rows of the database at the end, by the queries that the oracles have asked for. */
  readonly rows: Readonly<Record<string, ReadonlyArray<Readonly<Record<string, unknown>>>>>
  /** The rows that retention has removed, as they were seen last; those of `rows` include them. */
  readonly removed: ReadonlyArray<Removed>
  /** When the faults stopped, and when everything had settled. */
  readonly calmAt: number
  readonly endAt: number
}

/** A row that was seen, and was gone when it was looked for again. */
export interface Removed {
  readonly table: string
  readonly row: Readonly<Record<string, unknown>>
  /** When it was missed. */
  readonly at: number
}

/** A sentence of the claim that a run has broken. */
export interface Violation {
  readonly oracle: string
  readonly what: string
  /** When it showed, in true time. */
  readonly at: number
}

/** Whether the operation was answered with success. */
export const succeeded = ({ status }: Done) => status !== undefined && status < 300

/** Whether the try may have taken effect, although it was not answered so. */
export const isUncertain = ({ status }: Try) => status === undefined || status >= 500

/** The faults that keep a replica from its work, or from the database. */
export const lamingKinds: ReadonlySet<string> = new Set([
  "crash",
  "pause",
  "cut",
  "silence",
  "refuse",
  "cut at commit",
  "lose notifications",
  "slow database",
])

/** Whether a fault of these kinds touched a replica between two times. */
export const isTouched = ({ faults }: History, kinds: ReadonlySet<string>, replica: string, from: number, to: number) =>
  faults.some((fault) => kinds.has(fault.kind) && fault.replica === replica && fault.start <= to && fault.end >= from)

/** Whether a clock has stepped before a time. What is off stays so. */
export const hasStepped = ({ faults }: History, before: number) =>
  faults.some(({ kind, start }) => (kind === "clock step" || kind === "database clock step") && start <= before)
