const formEncoded = (text: string) => new URLSearchParams({ "": text }).toString().slice(1)

/**
 * The header `authorization` of a client of an OAuth2 server: HTTP Basic with the id and the secret, which are
 * form-encoded before they are joined. Source: RFC 6749, section 2.3.1.
 */
export const clientCredentials = (id: string, secret: string) =>
  `Basic ${Buffer.from(`${formEncoded(id)}:${formEncoded(secret)}`).toString("base64")}`
