import { Config, Effect, Option, Redacted, Schema, SchemaIssue } from "effect"
import { HttpClient, HttpClientError, type HttpClientResponse } from "effect/http"
import { keyPrefix } from "../domain/keys/ApiKey.ts"
import * as Gatehouse from "../sdk/client.ts"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import { CommandFailed, usage } from "./CommandFailed.ts"
import { inFlags } from "./fields.ts"
import { Json, Url } from "./flags.ts"
import { plain, print, type Shown } from "./output.ts"

/** Who calls: the administrator's token, an API key, or nobody. From the environment, as arguments are in the process list. */
const credential = Config.option(Config.Redacted("GATEHOUSE_TOKEN")).pipe(
  Effect.orDie,
  Effect.map(Option.getOrUndefined),
)

const kindOf = (token: Redacted.Redacted<string> | undefined) =>
  token && (Redacted.value(token).startsWith(keyPrefix) ? "key" : "token")

/** What an operation may take: a webhook's test has 15 seconds of its own. */
const timeLimit = "60 seconds"

/**
 * Runs an operation of the typed client against the service that `--url` names, and gives what it gave. Fails with a
 * `CommandFailed` that says why there is no such answer; with `--json` the answer that was an error is printed, too.
 */
export const ask = Effect.fnUntraced(function* <A, E, R>(
  operation: (client: Gatehouse.Client) => Effect.Effect<A, E, R>,
) {
  const baseUrl = yield* Url
  if (!URL.canParse(baseUrl) || !/^https?:$/.test(new URL(baseUrl).protocol)) {
    return yield* usage(
      `"${plain(baseUrl)}" is no http or https URL; set --url or GATEHOUSE_URL to the service's address`,
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
      duration: timeLimit,
      orElse: () => Effect.fail(new CommandFailed({ message: `${baseUrl} has not answered within ${timeLimit}` })),
    }),
    Effect.tapError((error) => (isApiError(error) ? Effect.flatMap(document, printDocument) : Effect.void)),
    Effect.mapError((error) =>
      describe(error, { baseUrl, credential: kindOf(token), status: response?.status, asked: response?.request.url }),
    ),
  )
  return { answer, document: yield* document }
})

/** Runs an operation of the typed client and prints: with `--json` the answer, word for word, else what `show` makes of it. */
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

interface Attempt {
  readonly baseUrl: string
  /** What was sent: an API key, or another token. */
  readonly credential: "key" | "token" | undefined
  /** Of the answer, when there was one. */
  readonly status: number | undefined
  /** The url that gave it. */
  readonly asked: string | undefined
}

/** What to do about a credential that was refused; a key that was asked about is none. */
const hint = ({ credential, asked = "" }: Attempt) => {
  if (asked.endsWith("/keys/validate")) return ""
  const isSent = credential !== undefined
  if (/\/v1\/(jobs|schedules|webhooks)\//.test(asked) && credential !== "key") {
    return ` Set GATEHOUSE_TOKEN to an API key (svc_…)${isSent ? ": what it holds is none" : "; ADMIN_TOKEN is none"}.`
  }
  return isSent
    ? " GATEHOUSE_TOKEN holds the credential that was sent."
    : " Set GATEHOUSE_TOKEN to an API key (svc_…), or to the server's ADMIN_TOKEN."
}

const describe = (error: unknown, attempt: Attempt): CommandFailed => {
  const { baseUrl, status } = attempt
  if (error instanceof CommandFailed) return error
  if (isApiError(error)) {
    const sentence = plain(error.error)
    if (error._tag === "InvalidRequest") return new CommandFailed({ message: inFlags(sentence) })
    return new CommandFailed({ message: `${sentence}${error._tag === "Unauthorized" ? hint(attempt) : ""}` })
  }
  if (status !== undefined) {
    return new CommandFailed({
      message: `${baseUrl} answered with status ${status}, and not as Gatehouse does; is --url or GATEHOUSE_URL its address?`,
    })
  }
  if (Schema.isSchemaError(error)) return usage(fault(error))
  if (HttpClientError.isHttpClientError(error)) {
    return new CommandFailed({
      message: `${baseUrl} does not answer (${transportFault(error)}); start the service with gatehouse serve, or set --url or GATEHOUSE_URL`,
    })
  }
  return new CommandFailed({ message: String(error) })
}

const format = SchemaIssue.makeFormatterStandardSchemaV1()

/** What the request would have broken, before it was sent. */
const fault = ({ issue }: Schema.SchemaError) =>
  inFlags(
    format(issue)
      .issues.map(
        ({ message, path }) => `${(path ?? []).map(String).join(".")} ${message.replace(/^Expected/, "must be")}`,
      )
      .join("; "),
  )
