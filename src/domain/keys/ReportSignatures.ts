import { Context, type Effect } from "effect"
import type { Unavailable } from "../Errors.ts"

/** A report of leaked keys, as it was signed. */
export interface SignedReport {
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
