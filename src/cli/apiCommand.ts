import { Effect, Option, Redacted, Stdio, Stream } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import { HttpClient, HttpClientRequest } from "effect/http"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import { refusalOf, withoutRedirects } from "../sdk/withoutRedirects.ts"
import { requestDeadline } from "./callOperation.ts"
import { failure, plain, print, usage } from "./output.ts"
import { connection } from "./connection.ts"
import { actForFlag, textArgument, textOrFile } from "./flags.ts"

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const

/** The text of `--data`; `-` is standard input, and `@` begins the name of a file. */
const bodyOf = Effect.fnUntraced(function* (data: string) {
  const { stdin } = yield* Stdio.Stdio
  if (data === "-") return yield* Effect.orDie(Stream.mkString(Stream.decodeText(stdin)))
  return yield* Effect.try({
    try: () => textOrFile(data),
    catch: () => usage("--data: the file cannot be read, or is not UTF-8"),
  })
})

/** Sends any request to the service, with the credential, and prints the body of the response. */
export const api = Command.make(
  "api",
  {
    method: Argument.Literals("method", methods).pipe(Argument.withDescription("GET, POST, PUT, PATCH or DELETE")),
    path: textArgument("path", "The path with its query: /api/v0/projects?limit=5"),
    data: Flag.String("data").pipe(
      Flag.withAlias("d"),
      Flag.withDescription("The JSON body, or @file; - reads it from standard input"),
      Flag.optional,
    ),
    org: actForFlag,
  },
  Effect.fnUntraced(function* ({ data, method, org, path }) {
    if (!path.startsWith("/")) return yield* usage("The path must begin with /, for example /api/v0/projects")
    const { baseUrl, token } = yield* connection
    const body = Option.isSome(data) ? yield* bodyOf(data.value) : undefined
    const request = HttpClientRequest.make(method)(`${baseUrl.replace(/\/+$/, "")}${path}`).pipe(
      (request) => (token === undefined ? request : HttpClientRequest.bearerToken(request, Redacted.value(token))),
      (request) => (Option.isNone(org) ? request : HttpClientRequest.setHeader(request, "x-org-id", org.value)),
      (request) => (body === undefined ? request : HttpClientRequest.bodyText(request, body, "application/json")),
    )
    const http = withoutRedirects(yield* HttpClient.HttpClient)
    const { status, text } = yield* http.execute(request).pipe(
      Effect.flatMap((response) => Effect.map(response.text, (text) => ({ status: response.status, text }))),
      Effect.timeout(requestDeadline),
      Effect.catchTags({
        HttpClientError: (error) => {
          const refusal = refusalOf(error)
          const fault = refusal === undefined ? ` does not answer (${transportFault(error)})` : `: ${plain(refusal)}`
          return failure(`${baseUrl}${fault}`)
        },
        TimeoutError: () => failure(`${baseUrl} did not answer within ${requestDeadline}`),
      }),
    )
    yield* print(text, { out: text })
    if (status >= 400) return yield* failure(`${method} ${path} failed with status ${status}; the response is above`)
  }),
).pipe(
  Command.withDescription("Send any request to the service, and print the response"),
  Command.withExamples([
    { command: "gatehouse api GET '/api/v0/projects?limit=5'" },
    { command: `gatehouse api POST /v1/jobs/create --data '{"workflow":"nightly-report"}'` },
  ]),
)
