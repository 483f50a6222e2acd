import { Context, Effect, Layer, Schema } from "effect"
import type { Unavailable } from "../Errors.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { isWellFormed } from "./ApiKey.ts"
import { ApiKeyRepository, KeyHash } from "./ApiKeyRepository.ts"
import { KeyMemory } from "../KeyMemory.ts"
import { cut } from "../Schemas.ts"

const maxReports = 1_000

/** A token that a secret scanner found. */
const ReportedToken = Schema.Struct({
  token: Schema.String.annotate({
    description: "What matched.",
    examples: ["svc_hE4kPz9QmT2vX7cRw1LsNd8YbUa5JgFo6iKe2eUdYl"],
  }),
  type: Schema.String.annotate({ description: "The name of the pattern.", examples: ["gatehouse_api_key"] }),
  url: Schema.optionalKey(Schema.NullOr(Schema.String)).annotate({
    description: "Where it was found. It may be empty.",
    examples: ["https://github.com/acme/docs/blob/6dcb09b5b57875f334f61aebed695e2e4193db5e/env.sh"],
  }),
  source: Schema.optionalKey(Schema.NullOr(Schema.String)).annotate({
    description: "In what it was found.",
    examples: ["commit"],
  }),
}).annotate({ identifier: "ReportedToken" })
type ReportedToken = typeof ReportedToken.Type

export const ReportedTokens = Schema.Array(ReportedToken)
  .check(Schema.isMaxLength(maxReports, { expected: "a list of at most 1,000 tokens" }))
  .annotate({ identifier: "ReportedTokens" })

/** Whether a reported token is a key. */
export const TokenLabel = Schema.Struct({
  token_raw: Schema.String.annotate({
    description: "The token.",
    examples: ["svc_hE4kPz9QmT2vX7cRw1LsNd8YbUa5JgFo6iKe2eUdYl"],
  }),
  token_type: Schema.String.annotate({ description: "The name of the pattern.", examples: ["gatehouse_api_key"] }),
  label: Schema.Literals(["true_positive", "false_positive"]).annotate({
    description: "true_positive: it is a key, which is disabled now.",
    examples: ["true_positive"],
  }),
}).annotate({ identifier: "TokenLabel" })
export type TokenLabel = typeof TokenLabel.Type

/** The longest text of a report that the audit log keeps. */
const maxAuditedText = 1_000
const audited = (text: string | null | undefined) => (text == null ? null : cut(text, maxAuditedText))

/** Keys that secret scanners have found in public. */
export class LeakedKeys extends Context.Service<LeakedKeys>()("gatehouse/domain/LeakedKeys", {
  make: Effect.gen(function* () {
    const repository = yield* ApiKeyRepository
    const hashOf = yield* KeyHash
    const audit = yield* AuditLog
    const { forget } = yield* KeyMemory

    const disable = Effect.fnUntraced(function* ({ source, token, type, url }: ReportedToken) {
      if (!isWellFormed(token)) return false
      const details = { reporter: "github", type: audited(type), source: audited(source), url: audited(url) }
      const entryOf = (keyId: string) => {
        const event = { type: "key.leaked", data: { key_id: keyId, url: details.url } } as const
        return audit.entryOfService({ action: "key.leaked", target: keyId, details, event })
      }
      const leaked = yield* repository.disableLeaked(hashOf(token), entryOf)
      if (leaked === undefined) return false
      yield* forget(leaked.keyId)
      if (leaked.isNew) {
        yield* Effect.logWarning("A leaked key is disabled").pipe(
          Effect.annotateLogs({ orgId: leaked.orgId, keyId: leaked.keyId }),
        )
      }
      return true
    })

    return {
      /** Disables every token that is a key, for ever. Returns a label for each token, in the same order. */
      report: Effect.fn("LeakedKeys.report")(function* (tokens: ReadonlyArray<ReportedToken>) {
        return yield* Effect.forEach(tokens, (reported) =>
          Effect.map(disable(reported), (isKey): TokenLabel => ({
            token_raw: reported.token,
            token_type: reported.type,
            label: isKey ? "true_positive" : "false_positive",
          })),
        )
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** A report of leaked keys, as it was signed. */
interface SignedReport {
  /** The identifier of the reporter's public key. */
  readonly keyId: string
  /** In base64. */
  readonly signature: string
  /** The exact bytes that were signed. */
  readonly body: Uint8Array
}

/** The signatures of reports of leaked keys. */
export class ReportSignatures extends Context.Service<
  ReportSignatures,
  {
    /** Whether the reporter has signed these bytes. Fails when the reporter's public keys cannot be read. */
    readonly verify: (report: SignedReport) => Effect.Effect<boolean, Unavailable>
  }
>()("gatehouse/domain/ReportSignatures") {}
