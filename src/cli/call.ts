import { Config, Effect, Option, Redacted, Schema, SchemaIssue } from "effect"
import { HttpClient, HttpClientError, type HttpClientResponse } from "effect/http"
import { keyPrefix } from "../domain/keys/ApiKey.ts"
import * as Gatehouse from "../sdk/client.ts"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import { CommandFailed, usage } from "./CommandFailed.ts"
import { inFlags } from "./fields.ts"
import { Json, Url } from "./flags.ts"
import { plain, print, type Shown } from "./output.ts"

/** GATEHOUSE_TOKEN: an administrator's token or an API key. No argument, because arguments appear in the process list. */
const credential = Config.option(Config.Redacted("GATEHOUSE_TOKEN")).pipe(
  Effect.orDie,
  Effect.map(Option.getOrUndefined),
)

const kindOf = (token: Redacted.Redacted<string> | undefined) =>
  token && (Redacted.value(token).startsWith(keyPrefix) ? "key" : "token")

/** Deadline of an operation. The test of a webhook alone may take 15 seconds. */
const requestDeadline = "60 seconds"

/**
 * Runs an operation of the typed client against the service at `--url`. Returns the decoded answer and its text. Fails with
 * a `CommandFailed`. With `--json` it also prints the text of an answer that is an error.
 */
export const ask = Effect.fnUntraced(function* <A, E, R>(
  operation: (client: Gatehouse.Client) => Effect.Effect<A, E, R>,
) {
  const baseUrl = yield* Url
  if (!URL.canParse(baseUrl) || !/^https?:$/.test(new URL(baseUrl).protocol)) {
    return yield* usage(
      `"${plain(baseUrl)}" is not an http or https URL. Set --url or GATEHOUSE_URL to the address of the service`,
    )
  }
  const token = yield* credential
  let response: HttpClientResponse.HttpClientResponse | undefined
  const http = HttpClient.tap(yield* HttpClient.HttpClient, (answer) => Effect.sync(() => void (response = answer)))
  const document = Effect.suspend(() =>
    response === undefined ? Effect.succeed("") : Effect.orElseSucceed(response.text, () => ""),
  )

  const client = yield* Gatehouse.make({ baseUrl, credential: token }).pipe(
    Effect.provideService(HttpClient.HttpClient, http),
  )
  const answer = yield* operation(client).pipe(
    Effect.timeoutOrElse({
      duration: requestDeadline,
      orElse: () =>
        Effect.fail(
          new CommandFailed({
            message: `${baseUrl} did not answer within ${requestDeadline}. The operation may have succeeded: check before you run it again`,
          }),
        ),
    }),
    Effect.tapError((error) => (isApiError(error) ? Effect.flatMap(document, printDocument) : Effect.void)),
    Effect.mapError((error) =>
      commandFailed(error, {
        baseUrl,
        credential: kindOf(token),
        status: response?.status,
        requestUrl: response?.request.url,
      }),
    ),
  )
  return { answer, document: yield* document }
})

/** Runs an operation like `ask` and prints the answer: its exact text with `--json`, else what `show` returns. */
export const call = Effect.fnUntraced(function* <A, E, R>(
  operation: (client: Gatehouse.Client) => Effect.Effect<A, E, R>,
  show: (answer: A) => Shown,
) {
  const { answer, document } = yield* ask(operation)
  yield* print(document, show(answer))
  return answer
})

const printDocument = Effect.fnUntraced(function* (document: string) {
  if (yield* Json) yield* print(document, { out: "" })
})

interface ApiError {
  readonly _tag: string
  readonly error: string
  readonly code: string
}
const isApiError = (error: unknown): error is ApiError => typeof (error as ApiError | undefined)?.error === "string"

interface FailedRequest {
  readonly baseUrl: string
  /** The kind of credential that was sent. */
  readonly credential: "key" | "token" | undefined
  /** `undefined`: there was no answer. */
  readonly status: number | undefined
  readonly requestUrl: string | undefined
}

/** What to do about a refused credential. `keys validate` reports on the key in its body, not on the credential. */
const hint = ({ credential, requestUrl = "" }: FailedRequest) => {
  if (requestUrl.endsWith("/keys/validate")) return ""
  const isSent = credential !== undefined
  if (/\/v1\/(events|jobs|schedules|webhooks)\//.test(requestUrl) && credential !== "key") {
    return ` Set GATEHOUSE_TOKEN to an API key (svc_…); ${isSent ? "its value" : "ADMIN_TOKEN"} is not an API key.`
  }
  return isSent
    ? " The credential is the value of GATEHOUSE_TOKEN."
    : " Set GATEHOUSE_TOKEN to an API key (svc_…), or to the server's ADMIN_TOKEN."
}

const commandFailed = (error: unknown, request: FailedRequest): CommandFailed => {
  const { baseUrl, status } = request
  if (error instanceof CommandFailed) return error
  if (isApiError(error)) {
    const sentence = plain(error.error)
    if (error._tag === "InvalidRequest") return new CommandFailed({ message: inFlags(sentence) })
    return new CommandFailed({ message: `${sentence}${error._tag === "Unauthorized" ? hint(request) : ""}` })
  }
  if (status !== undefined) {
    return new CommandFailed({
      message: `${baseUrl} answered with status ${status}, but not as Gatehouse does. Set --url or GATEHOUSE_URL to the address of the service`,
    })
  }
  if (Schema.isSchemaError(error)) return usage(requestFaults(error))
  if (HttpClientError.isHttpClientError(error)) {
    return new CommandFailed({
      message: `${baseUrl} does not answer (${transportFault(error)}). Start the service with gatehouse serve, or set --url or GATEHOUSE_URL to its address`,
    })
  }
  return new CommandFailed({ message: String(error) })
}

const format = SchemaIssue.makeFormatterStandardSchemaV1()

/** What is wrong with a request that was not sent. */
const requestFaults = ({ issue }: Schema.SchemaError) =>
  inFlags(
    format(issue)
      .issues.map(
        ({ message, path }) => `${(path ?? []).map(String).join(".")} ${message.replace(/^Expected/, "must be")}`,
      )
      .join("; "),
  )
