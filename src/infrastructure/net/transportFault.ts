/** Why a request had no response: the code of the innermost cause (such as `ECONNREFUSED`), or its message. */
export const transportFault = (error: unknown): string => {
  const { cause, code, message } = error as {
    readonly cause?: unknown
    readonly code?: string
    readonly message?: string
  }
  if (typeof cause === "object" && cause !== null) return transportFault(cause)
  const fault = code ?? message ?? String(error)
  return isUnknownIssuer(code) ? `${fault}; NODE_EXTRA_CA_CERTS names the file of a private CA` : fault
}

/** OpenSSL's reasons for a certificate whose issuer it does not know. */
const unknownIssuers = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
])

/** Whether a code of OpenSSL says that nobody who is known issued the certificate of the server. */
export const isUnknownIssuer = (code = ""): boolean => unknownIssuers.has(code)
