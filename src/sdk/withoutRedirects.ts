import { Effect } from "effect"
import { FetchHttpClient, HttpClient, HttpClientError } from "effect/http"
import { fitsHeader } from "./post.ts"

/** What a redirect says, for the people who set the address; `undefined` for any other response. */
const redirectFault = (status: number, location: string | undefined) =>
  status >= 300 && status < 400
    ? `It redirects to ${location ?? "another address"}, and a redirect is not followed, because it would take the credential there. Use that address if you trust it`
    : undefined

/**
 * An HTTP client that follows no redirect: a redirect would take the credential, and the keys in a body, to an address
 * that nobody chose. It fails with an `HttpClientError` that names the address. A credential that no header can have is
 * not sent: the error of the runtime would repeat it.
 */
export const withoutRedirects = (client: HttpClient.HttpClient): HttpClient.HttpClient =>
  HttpClient.transform(client, (sent, request) => {
    const wrong = Object.keys(request.headers).find((name) => !fitsHeader(request.headers[name]!))
    if (wrong !== undefined) {
      const description = `The value of ${wrong} has characters that no header can have, such as a line break`
      return Effect.fail(
        new HttpClientError.HttpClientError({ reason: new HttpClientError.EncodeError({ request, description }) }),
      )
    }
    return Effect.flatMap(
      Effect.provideService(sent, FetchHttpClient.RequestInit, { redirect: "manual" }),
      (response) => {
        const description = redirectFault(response.status, response.headers["location"])
        return description === undefined
          ? Effect.succeed(response)
          : Effect.fail(
              new HttpClientError.HttpClientError({
                reason: new HttpClientError.StatusCodeError({ request, response, description }),
              }),
            )
      },
    )
  })

/** The sentence of this client with which a request failed; `undefined` for any other error. */
export const refusalOf = (error: unknown): string | undefined => {
  if (!HttpClientError.isHttpClientError(error)) return undefined
  const { reason } = error
  if (reason._tag === "EncodeError") return reason.description
  return reason._tag === "StatusCodeError"
    ? redirectFault(reason.response.status, reason.response.headers["location"])
    : undefined
}
