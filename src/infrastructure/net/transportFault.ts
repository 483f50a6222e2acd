/** Why a request had no answer: the innermost cause, which has the operating system's word for it (`ECONNREFUSED`). */
export const transportFault = (error: unknown): string => {
  const { cause, code, message } = error as {
    readonly cause?: unknown
    readonly code?: string
    readonly message?: string
  }
  if (typeof cause === "object" && cause !== null) return transportFault(cause)
  return code ?? message ?? String(error)
}
