/** Why a request had no response: the code of the innermost cause (such as `ECONNREFUSED`), or its message. */
export const transportFault = (error: unknown): string => {
  const { cause, code, message } = error as {
    readonly cause?: unknown
    readonly code?: string
    readonly message?: string
  }
  if (typeof cause === "object" && cause !== null) return transportFault(cause)
  return code ?? message ?? String(error)
}
