import { Data, Effect, Redacted, Schedule, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
import * as Gatehouse from "./client.ts"
import type { Registration } from "../domain/deployments/Registration.ts"
import { transportFault } from "../infrastructure/net/transportFault.ts"

/** Environment variables, such as `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>

export interface RegisterOptions {
  /** The address of the service: `https://gatehouse.example.com`. */
  readonly url: string
  /** An audience of the service's `OIDC_AUDIENCE`. Default: `url` without trailing slashes, as in the service. */
  readonly audience?: string | undefined
  /** The environment of the CI job; the runner sets the address of its token endpoint and the credential for it. */
  readonly environment: Environment
}

/** The deployment is not registered. `message` is one line that says why and what to do. It contains no token. */
export class RegistrationFailed extends Data.TaggedError("RegistrationFailed")<{ readonly message: string }> {}

const failed = (message: string) => Effect.fail(new RegistrationFailed({ message }))

/** Whether the environment is a run of GitHub Actions. */
export const isGitHubActions = (environment: Environment) => environment["GITHUB_ACTIONS"] === "true"

/** Deadline of a registration, with the request for the token and all retries. */
const registrationDeadline = "30 seconds"

/** Retries twice after a transient failure: no connection, 429, 5xx. Registration is idempotent. */
const withRetries = (client: HttpClient.HttpClient) =>
  HttpClient.retryTransient(client, { schedule: Schedule.exponential("500 millis"), times: 2 })

const TokenAnswer = Schema.Struct({ value: Schema.NonEmptyString })

/** Requests the OIDC token of the run from the runner. Source: GitHub's "OpenID Connect reference". */
const requestToken = Effect.fnUntraced(function* (environment: Environment, audience: string) {
  const address = environment["ACTIONS_ID_TOKEN_REQUEST_URL"]
  const credential = environment["ACTIONS_ID_TOKEN_REQUEST_TOKEN"]
  if (!address || !credential) {
    return yield* failed(
      'the job may not request an OIDC token. Add "permissions: id-token: write" to the job in the workflow (runs for pull requests from forks never get it)',
    )
  }
  const request = HttpClientRequest.get(address).pipe(
    HttpClientRequest.setUrlParam("audience", audience),
    HttpClientRequest.bearerToken(credential),
  )
  const { value } = yield* withRetries(yield* HttpClient.HttpClient)
    .execute(request)
    .pipe(
      Effect.filterOrElse(
        ({ status }) => status === 200,
        ({ status }) => failed(`the runner's token endpoint answered with status ${status}`),
      ),
      Effect.flatMap(HttpClientResponse.schemaBodyJson(TokenAnswer)),
      Effect.catchTags({
        HttpClientError: (error) => failed(`the runner's token endpoint does not answer (${transportFault(error)})`),
        SchemaError: () => failed("the runner's token endpoint answered without a token"),
      }),
    )
  return Redacted.make(value)
})

/**
 * Registers the deployment of this CI run with the run's own OIDC token. A second call in the same run changes nothing.
 * Fails with a `RegistrationFailed` if the runner issues no token, if the service refuses the token or does not answer, or
 * after 30 seconds.
 */
export const register: (
  options: RegisterOptions,
) => Effect.Effect<typeof Registration.Type, RegistrationFailed, HttpClient.HttpClient> = Effect.fnUntraced(
  function* ({ audience, environment, url }: RegisterOptions) {
    const credential = yield* requestToken(environment, audience ?? url.replace(/\/+$/, ""))
    const gatehouse = yield* Gatehouse.make({ baseUrl: url, credential }).pipe(
      Effect.provideServiceEffect(HttpClient.HttpClient, Effect.map(HttpClient.HttpClient, withRetries)),
    )
    return yield* gatehouse.deployments.register({ headers: {}, payload: {} }).pipe(
      Effect.catchTags({
        HttpClientError: (error) =>
          failed(
            error.response === undefined
              ? `${url} does not answer (${transportFault(error)})`
              : `${url} answered with status ${error.response.status}, but not as Gatehouse does. Check the address`,
          ),
        SchemaError: () => failed(`${url} answers, but not as Gatehouse does. Check the address`),
      }),
      Effect.mapError((error) => new RegistrationFailed({ message: "error" in error ? error.error : error.message })),
    )
  },
  Effect.timeoutOrElse({
    duration: registrationDeadline,
    orElse: () => failed(`no answer within ${registrationDeadline}`),
  }),
)
