import { Context, Effect, Layer, Redacted, type Schema } from "effect"
import { Cipher } from "../Cipher.ts"
import { checkReceiverUrl, ReceiverUrlRules } from "../callableUrls.ts"
import { withoutUndefined } from "../withoutUndefined.ts"
import { defaultMaxAttempts, defaultPriority, defaultRetryDelaySeconds, type jobFields } from "./Job.ts"

/** The contents of a new job. A schedule has one and copies it at each run. */
export interface JobTemplate {
  readonly workflow: string
  readonly input: unknown
  readonly deploymentId: string | null
  readonly callbackUrl: string | null
  /** Encrypted for the id of the job or schedule. */
  readonly callbackSecret: string | null
  readonly skipCallbacks: boolean
  readonly concurrencyKey: string | null
  readonly priority: number
  readonly maxAttempts: number
  readonly retryDelaySeconds: number
  readonly expiresInSeconds: number | null
}

/** What a job has if its request says nothing else. */
const defaults = {
  input: null,
  deploymentId: null,
  callbackUrl: null,
  callbackSecret: null,
  skipCallbacks: false,
  concurrencyKey: null,
  priority: defaultPriority,
  maxAttempts: defaultMaxAttempts,
  retryDelaySeconds: defaultRetryDelaySeconds,
  expiresInSeconds: null,
} as const

type Fields = Schema.Struct.Type<typeof jobFields>

/** Makes templates of the fields of a request. */
export class JobTemplates extends Context.Service<JobTemplates>()("gatehouse/domain/JobTemplates", {
  make: Effect.gen(function* () {
    const cipher = yield* Cipher
    const rules = yield* ReceiverUrlRules

    /** `prepare` for the fields that change. */
    const change = Effect.fnUntraced(function* (fields: Partial<Fields>, owner: string) {
      const { callback_secret: secret, callback_url: url } = fields
      if (url != null) yield* checkReceiverUrl("callback_url", url, rules)
      const template = {
        workflow: fields.workflow,
        input: fields.input,
        deploymentId: fields.deployment_id,
        callbackUrl: url,
        callbackSecret: secret == null ? secret : yield* cipher.encrypt(Redacted.make(secret), owner),
        skipCallbacks: fields.skip_callbacks,
        concurrencyKey: fields.concurrency_key,
        priority: fields.priority,
        maxAttempts: fields.max_attempts,
        retryDelaySeconds: fields.retry_delay_seconds,
        expiresInSeconds: fields.expires_in_seconds,
      }
      return withoutUndefined(template)
    })

    return {
      change,

      /** Checks the callback URL, and encrypts the callback secret for `owner`: the id of the job or schedule. */
      prepare: (fields: Fields, owner: string) =>
        Effect.map(change(fields, owner), (given) => ({ ...defaults, workflow: fields.workflow, ...given })),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
