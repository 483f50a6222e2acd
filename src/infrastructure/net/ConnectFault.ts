import type { FailureKind } from "../../domain/webhooks/WebhookSender.ts"

/** No connection. `message` is a sentence for the user who chose the URL. */
export class ConnectFault extends Error {
  readonly kind: FailureKind
  constructor(kind: FailureKind, message: string) {
    super(message)
    this.kind = kind
  }
}

export const codeOf = (error: unknown): string => (error as { readonly code?: string } | null)?.code ?? "no code"
