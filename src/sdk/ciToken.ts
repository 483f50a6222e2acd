import { Data, Effect, Redacted, Schedule, Schema } from "effect"
import { HttpClient, HttpClientRequest, HttpClientResponse } from "effect/http"
import { execFile } from "node:child_process"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import { withoutRedirects, refusalOf } from "./withoutRedirects.ts"

/** The deployment is not registered. `message` is one line that says why and what to do. It contains no token. */
export class RegistrationFailed extends Data.TaggedError("RegistrationFailed")<{ readonly message: string }> {}

export const failed = (message: string) => Effect.fail(new RegistrationFailed({ message }))

/** Environment variables, such as `process.env`. */
export type Environment = Readonly<Record<string, string | undefined>>

/** The variable of a token that the job has got by itself. It works in every CI. */
const ownToken = "GATEHOUSE_ID_TOKEN"

/** Retries twice after a transient failure: no connection, 429, 5xx. */
export const withRetries = (client: HttpClient.HttpClient) =>
  HttpClient.retryTransient(withoutRedirects(client), { schedule: Schedule.exponential("500 millis"), times: 2 })

const TokenAnswer = Schema.Struct({ value: Schema.NonEmptyString })

/** Requests the token from the runner. Source: GitHub's "OpenID Connect reference". */
const requestFromGitHub = Effect.fnUntraced(function* (environment: Environment, audience: string) {
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
        HttpClientError: (error) =>
          failed(`the runner's token endpoint does not answer (${refusalOf(error) ?? transportFault(error)})`),
        SchemaError: () => failed("the runner's token endpoint answered without a token"),
      }),
    )
  return value
})

/** The claims that Buildkite adds only on request; the service needs these ids. */
const buildkiteClaims = "organization_id,pipeline_id"
const agentFault =
  "buildkite-agent returned no token. The job must run in a Buildkite agent of version 3.48 or later, with buildkite-agent in PATH"

/** Asks Buildkite's agent. Source: Buildkite's "buildkite-agent oidc". */
const requestFromBuildkite = (environment: Environment, audience: string) =>
  Effect.callback<string, RegistrationFailed>((resume) => {
    const asked = ["oidc", "request-token", "--audience", audience, "--claim", buildkiteClaims]
    const options = { env: environment as NodeJS.ProcessEnv, timeout: 20_000, maxBuffer: 64 * 1024 }
    // Its messages may contain the token.
    const child = execFile("buildkite-agent", asked, options, (fault, output) => {
      const token = output.trim()
      resume(fault === null && token !== "" ? Effect.succeed(token) : failed(agentFault))
    })
    return Effect.sync(() => void child.kill())
  })

const fromVariable = (environment: Environment, variable: string, remedy: string) => {
  const token = environment[variable]
  return token ? Effect.succeed(token) : failed(`the job has no token in ${variable}. ${remedy}`)
}

interface Ci {
  readonly isHere: (environment: Environment) => boolean
  readonly token: (
    environment: Environment,
    audience: string,
  ) => Effect.Effect<string, RegistrationFailed, HttpClient.HttpClient>
}

const given: Ci = {
  isHere: (environment) => Boolean(environment[ownToken]),
  token: (environment) => fromVariable(environment, ownToken, ""),
}

const cis: ReadonlyArray<Ci> = [
  given,
  { isHere: (environment) => environment["GITHUB_ACTIONS"] === "true", token: requestFromGitHub },
  {
    isHere: (environment) => environment["GITLAB_CI"] === "true",
    token: (environment) =>
      fromVariable(environment, ownToken, `Add "id_tokens: ${ownToken}: aud: <address of the service>" to the job`),
  },
  {
    isHere: (environment) => environment["CIRCLECI"] === "true",
    token: (environment) =>
      fromVariable(
        environment,
        "CIRCLE_OIDC_TOKEN_V2",
        "Builds of forks get it only if the project passes secrets to them",
      ),
  },
  { isHere: (environment) => environment["BUILDKITE"] === "true", token: requestFromBuildkite },
  {
    isHere: (environment) => Boolean(environment["BITBUCKET_BUILD_NUMBER"]),
    token: (environment) =>
      fromVariable(
        environment,
        "BITBUCKET_STEP_OIDC_TOKEN",
        'Add "oidc: audiences: [<address of the service>]" to the step',
      ),
  },
]

/** Whether the environment is a run of a CI whose token can be found. */
export const isCi = (environment: Environment) => cis.some(({ isHere }) => isHere(environment))

/** Gets the OIDC token of the run from where its CI puts it. */
export const ciToken = (environment: Environment, audience: string) => {
  const ci = cis.find(({ isHere }) => isHere(environment))
  return ci === undefined
    ? failed(`this is not a run of a known CI. Put its token into ${ownToken}`)
    : Effect.map(ci.token(environment, audience), (token) => Redacted.make(token))
}
