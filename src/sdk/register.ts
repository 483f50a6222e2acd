import { Effect } from "effect"
import { HttpClient } from "effect/http"
import * as Gatehouse from "./client.ts"
import type { Registration } from "../domain/deployments/Deployment.ts"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import { ciToken, type Environment, failed, RegistrationFailed, withRetries } from "./ciToken.ts"
import { hasCredentials } from "./post.ts"
import { refusalOf } from "./withoutRedirects.ts"

export { type Environment, isCi } from "./ciToken.ts"
export { RegistrationFailed }

export interface RegisterOptions {
  /** The address of the service: `https://gatehouse.example.com`. */
  readonly url: string
  /** An audience of the service's `OIDC_AUDIENCE`. Default: `url` without trailing slashes, as in the service. */
  readonly audience?: string | undefined
  /** The environment of the CI job, where its CI puts the token or says where to get it. */
  readonly environment: Environment
}

/** Deadline of a registration, with the request for the token and all retries. */
const registrationDeadline = "30 seconds"

/**
 * Registers the deployment of this CI run with the run's own OIDC token. A second call in the same run changes nothing.
 * Fails with a `RegistrationFailed` if the CI issues no token, if the service refuses the token or does not answer, or
 * after 30 seconds.
 */
export const register: (
  options: RegisterOptions,
) => Effect.Effect<typeof Registration.Type, RegistrationFailed, HttpClient.HttpClient> = Effect.fnUntraced(
  function* ({ audience, environment, url }: RegisterOptions) {
    if (hasCredentials(url)) return yield* failed("the address of the service must have no user name or password")
    const credential = yield* ciToken(environment, audience ?? url.replace(/(?<!\/)\/+$/, ""))
    const gatehouse = yield* Gatehouse.make({ baseUrl: url, credential }).pipe(
      Effect.provideServiceEffect(HttpClient.HttpClient, Effect.map(HttpClient.HttpClient, withRetries)),
    )
    return yield* gatehouse.deployments.register({ headers: {}, payload: {} }).pipe(
      Effect.catchTags({
        HttpClientError: (error) =>
          failed(
            refusalOf(error) !== undefined
              ? `${url}: ${refusalOf(error)}`
              : error.response === undefined
                ? `${url} does not answer (${transportFault(error)})`
                : `${url} answered with status ${error.response.status}, but the response is not Gatehouse's. Check the address`,
          ),
        SchemaError: () => failed(`${url} answers, but the response is not Gatehouse's. Check the address`),
      }),
      Effect.mapError((error) => new RegistrationFailed({ message: "error" in error ? error.error : error.message })),
    )
  },
  Effect.timeoutOrElse({
    duration: registrationDeadline,
    orElse: () => failed(`no response within ${registrationDeadline}`),
  }),
)
