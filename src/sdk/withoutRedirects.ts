import { Effect } from "effect"
import { FetchHttpClient, HttpClient, HttpClientError } from "effect/http"

/** What a redirect says, for the people who set the address; `undefined` for any other response. */
const redirectFault = (status: number, location: string | undefined) =>
  status >= 300 && status < 400
    ? `It redirects to ${location ?? "another address"}, and a redirect is not followed, because it would take the credential there. Use that address if you trust it`
    : undefined

/**
 * An HTTP client that follows no redirect: a redirect would take the credential, and the keys in a body, to an address
 * that nobody chose. It fails with an `HttpClientError` that names the address.
 */
export const withoutRedirects = (client: HttpClient.HttpClient): HttpClient.HttpClient =>
  HttpClient.transform(client, (sent, request) =>
    Effect.flatMap(Effect.provideService(sent, FetchHttpClient.RequestInit, { redirect: "manual" }), (response) => {
      const description = redirectFault(response.status, response.headers["location"])
      return description === undefined
        ? Effect.succeed(response)
        : Effect.fail(
            new HttpClientError.HttpClientError({
              reason: new HttpClientError.StatusCodeError({ request, response, description }),
            }),
          )
    }),
  )

/** The sentence about the redirect with which a request failed; `undefined` for any other error. */
export const redirectOf = (error: unknown): string | undefined =>
  HttpClientError.isHttpClientError(error) && error.reason._tag === "StatusCodeError"
    ? redirectFault(error.reason.response.status, error.reason.response.headers["location"])
    : undefined
