import { Data, Effect, Redacted, Schedule, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
import * as Gatehouse from "./client.ts"
import type { Registration } from "../domain/deployments/Registration.ts"
import { transportFault } from "../infrastructure/net/transportFault.ts"

/** What a build runs in: `process.env`, as a rule. */
export type Environment = Readonly<Record<string, string | undefined>>

export interface RegisterOptions {
  /** The service's address: `https://gatehouse.example.com`. */
  readonly url: string
  /** One of the service's `OIDC_AUDIENCE`. Default: the url without a slash at its end, as is the service's own default. */
  readonly audience?: string | undefined
  /** Where the runner has put its token's address and the credential for it. */
  readonly environment: Environment
}

/** The deployment is not registered; `message` is one line that says why and what to do, and holds no token. */
export class RegistrationFailed extends Data.TaggedError("RegistrationFailed")<{ readonly message: string }> {}

const failed = (message: string) => Effect.fail(new RegistrationFailed({ message }))

/** Whether the build is a run of GitHub Actions. */
export const isGitHubActions = (environment: Environment) => environment["GITHUB_ACTIONS"] === "true"

const timeLimit = "30 seconds"

/** Once more and once again, for what may go by: no connection, 429, 5xx. Registering twice registers once. */
const persistent = (client: HttpClient.HttpClient) =>
  HttpClient.retryTransient(client, { schedule: Schedule.exponential("500 millis"), times: 2 })

const RunnersAnswer = Schema.Struct({ value: Schema.NonEmptyString })

/** Asks the runner for the run's own OIDC token. Source: GitHub's "OpenID Connect reference", methods for requesting it. */
const requestToken = Effect.fnUntraced(function* (environment: Environment, audience: string) {
  const address = environment["ACTIONS_ID_TOKEN_REQUEST_URL"]
  const credential = environment["ACTIONS_ID_TOKEN_REQUEST_TOKEN"]
  if (!address || !credential) {
    return yield* failed(
      'the job may not ask for its OIDC token; give it "permissions: id-token: write" in the workflow (runs for pull requests from forks never have it)',
    )
  }
  const request = HttpClientRequest.get(address).pipe(
    HttpClientRequest.setUrlParam("audience", audience),
    HttpClientRequest.bearerToken(credential),
  )
  const { value } = yield* persistent(yield* HttpClient.HttpClient)
    .execute(request)
    .pipe(
      Effect.filterOrElse(
        ({ status }) => status === 200,
        ({ status }) => failed(`the runner's token endpoint answered with status ${status}`),
      ),
      Effect.flatMap(HttpClientResponse.schemaBodyJson(RunnersAnswer)),
      Effect.catchTags({
        HttpClientError: (error) => failed(`the runner's token endpoint does not answer (${transportFault(error)})`),
        SchemaError: () => failed("the runner's token endpoint answered without a token"),
      }),
    )
  return Redacted.make(value)
})

/**
 * Registers the deployment that this build is, by the run's own OIDC token. The same run again registers nothing new.
 * Fails with a `RegistrationFailed` when the runner gives no token, or when the service does not answer or refuses it,
 * within 30 seconds in all.
 */
export const register: (
  options: RegisterOptions,
) => Effect.Effect<typeof Registration.Type, RegistrationFailed, HttpClient.HttpClient> = Effect.fnUntraced(
  function* ({ audience, environment, url }: RegisterOptions) {
    const credential = yield* requestToken(environment, audience ?? url.replace(/\/+$/, ""))
    const gatehouse = yield* Gatehouse.make({ baseUrl: url, credential }).pipe(
      Effect.provideServiceEffect(HttpClient.HttpClient, Effect.map(HttpClient.HttpClient, persistent)),
    )
    return yield* gatehouse.deployments.register({ headers: {}, payload: {} }).pipe(
      Effect.catchTags({
        HttpClientError: (error) =>
          failed(
            error.response === undefined
              ? `${url} does not answer (${transportFault(error)})`
              : `${url} answered with status ${error.response.status}, and not as Gatehouse does`,
          ),
        SchemaError: () => failed(`${url} answers, and not as Gatehouse does`),
      }),
      Effect.mapError((error) => new RegistrationFailed({ message: "error" in error ? error.error : error.message })),
    )
  },
  Effect.timeoutOrElse({ duration: timeLimit, orElse: () => failed(`no answer within ${timeLimit}`) }),
)
