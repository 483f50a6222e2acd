import { Context, Effect, Layer, Redacted, type Schema } from "effect"
import { Cipher } from "../Cipher.ts"
import type { InvalidRequest } from "../Errors.ts"
import { checkUrl, ReceiverRules } from "../webhooks/ReceiverRules.ts"
import type { jobFields } from "./Job.ts"

/** The contents of a new job. A schedule has one and copies it at each firing. */
export interface JobTemplate {
  readonly workflow: string
  readonly input: unknown
  readonly deploymentId: string | null
  readonly callbackUrl: string | null
  /** Encrypted for the id of the job or schedule. */
  readonly callbackSecret: string | null
  readonly skipCallbacks: boolean
}

/** Makes templates of the fields of a request. */
export class JobTemplates extends Context.Service<
  JobTemplates,
  {
    /** Checks the callback URL, and encrypts the callback secret for `owner`: the id of the job or schedule. */
    readonly prepare: (
      fields: Schema.Struct.Type<typeof jobFields>,
      owner: string,
    ) => Effect.Effect<JobTemplate, InvalidRequest>
  }
>()("gatehouse/domain/JobTemplates") {
  static readonly layer = Layer.effect(
    JobTemplates,
    Effect.gen(function* () {
      const cipher = yield* Cipher
      const rules = yield* ReceiverRules
      return JobTemplates.of({
        prepare: Effect.fnUntraced(function* (fields, owner) {
          const { workflow, input = null, deployment_id = null, callback_url = null, callback_secret = null } = fields
          if (callback_url !== null) yield* checkUrl("callback_url", callback_url, rules)
          return {
            workflow,
            input,
            deploymentId: deployment_id,
            callbackUrl: callback_url,
            callbackSecret:
              callback_secret === null ? null : yield* cipher.encrypt(Redacted.make(callback_secret), owner),
            skipCallbacks: fields.skip_callbacks ?? false,
          }
        }),
      })
    }),
  )
}
