import { Context, Effect, Option, Schema, SchemaIssue } from "effect"
import { HttpClient, HttpClientError, type HttpClientResponse } from "effect/http"
import { isRawNumber, parseJson, scanJson } from "../domain/exactJson.ts"
import { faultInWords, faultOf } from "../domain/Schemas.ts"
import { orgLimitNames } from "../domain/orgs/OrgLimits.ts"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import * as Gatehouse from "../sdk/client.ts"
import { refusalOf } from "../sdk/withoutRedirects.ts"
import { CommandFailed, failure, more, type Output, plain, print, type Table, usage, whileRead } from "./output.ts"
import { ActFor, given, Json, type PageFlags } from "./flags.ts"
import { type Connection, connection, kindOf } from "./connection.ts"

/** Deadline of an operation. The test of a webhook alone may take 15 seconds. */
export const requestDeadline = "60 seconds"

/** The words for the fields of a command's request, in error messages. */
export const FieldWords = Context.Reference<ReadonlyMap<string, string>>("gatehouse/cli/FieldWords", {
  defaultValue: () => new Map(),
})

/**
 * Runs an operation of the typed client against the service of the connection. Returns the decoded body and its text.
 * Fails with a `CommandFailed`. With `--json` it also prints the text of a response that is an error.
 */
export const ask = <A, E, R>(operation: (client: Gatehouse.Client) => Effect.Effect<A, E, R>) =>
  Effect.flatMap(connection, (at) => askAt(at, operation))

/** `ask` with a connection that is given. */
export const askAt = Effect.fnUntraced(function* <A, E, R>(
  { baseUrl, source, token }: Connection,
  operation: (client: Gatehouse.Client) => Effect.Effect<A, E, R>,
) {
  let response: HttpClientResponse.HttpClientResponse | undefined
  const http = HttpClient.tap(yield* HttpClient.HttpClient, (received) => Effect.sync(() => void (response = received)))
  const document = Effect.suspend(() =>
    // A stream is for its reader.
    response?.headers["content-type"]?.startsWith("application/json") === true
      ? Effect.orElseSucceed(response.text, () => "")
      : Effect.succeed(""),
  )

  const words = yield* FieldWords
  const orgId = Option.getOrUndefined(yield* ActFor)
  const client = yield* Gatehouse.make({ baseUrl, credential: token, orgId }).pipe(
    Effect.provideService(HttpClient.HttpClient, http),
  )
  const body = yield* operation(client).pipe(
    Effect.timeoutOrElse({
      duration: requestDeadline,
      orElse: () =>
        failure(
          `${baseUrl} did not answer within ${requestDeadline}. The operation may have succeeded: check before you run it again`,
        ),
    }),
    Effect.tapError((error) => (isApiError(error) ? Effect.flatMap(document, printDocument) : Effect.void)),
    Effect.mapError((error) =>
      commandFailed(error, {
        baseUrl,
        credential: kindOf(token),
        source,
        status: response?.status,
        requestUrl: response?.request.url,
        words,
      }),
    ),
  )
  const text = yield* document
  return { body: (scanJson(text).hasRawNumbers ? withNumbers(body, parseJson(text)) : body) as A, document: text }
})

/** A decoded body with the numbers of its text, which JavaScript would print differently. */
const withNumbers = (body: unknown, exact: unknown): unknown => {
  if (isRawNumber(exact)) return typeof body === "number" ? exact : body
  if (typeof body === "object" && body !== null && typeof exact === "object" && exact !== null) {
    const fields = body as Record<string, unknown>
    for (const [name, one] of Object.entries(exact)) {
      if (Object.hasOwn(fields, name)) fields[name] = withNumbers(fields[name], one)
    }
  }
  return body
}

/** Runs an operation like `ask` and prints the body: its exact text with `--json`, else what `show` returns. */
export const call = Effect.fnUntraced(function* <A, E, R>(
  operation: (client: Gatehouse.Client) => Effect.Effect<A, E, R>,
  show: (body: A) => Output,
) {
  const { body, document } = yield* ask(operation)
  yield* print(document, show(body))
  return body
})

/** How many orgs an error message names. */
const maxShownOrgs = 3

/** The id of the org in `--org`, or of the only org that the credential can list. */
export const resolveOrg = Effect.fnUntraced(function* (org: Option.Option<string>) {
  if (Option.isSome(org)) return org.value
  const { orgs } = (yield* ask((gatehouse) => gatehouse.orgs.list({ query: { limit: 100 } }))).body
  if (orgs.length === 1) return orgs[0]!.orgId
  if (orgs.length === 0) {
    return yield* usage("There is no org yet. Create one with its first project: gatehouse projects create docs")
  }
  const shown = orgs.slice(0, maxShownOrgs).map(({ name, orgId }) => `${orgId} (${plain(name)})`)
  const rest = orgs.length > maxShownOrgs ? ", and others: gatehouse orgs list" : ""
  return yield* usage(`There are several orgs; choose one with --org: ${shown.join(", ")}${rest}`)
})

/** What a page of a list says of the next one. */
export interface ListPage {
  readonly nextCursor?: string | null
  readonly next_cursor?: string | null
}

/** Runs a list: one page, or with `--all` page by page. With `--json`, each page is a line. Returns the last page. */
export const callPages = Effect.fnUntraced(function* <A extends ListPage, E, R>(
  { all, cursor, limit }: PageFlags,
  operation: (
    client: Gatehouse.Client,
    page: { readonly limit: number; readonly cursor?: string },
  ) => Effect.Effect<A, E, R>,
  show: (body: A) => Table,
) {
  let isContinued = false
  let next = cursor
  for (;;) {
    const page = { limit: all ? 100 : limit, ...given({ cursor: next }) }
    const { body, document } = yield* ask((client) => operation(client, page))
    const following = body.nextCursor ?? body.next_cursor ?? null
    yield* print(document, { out: { ...show(body), isContinued }, note: all ? undefined : more(following) })
    if (!all || following === null) return body
    isContinued = true
    next = Option.some(following)
  }
}, whileRead)

/** Pages that `allPages` reads. */
const maxPages = 10_000

/**
 * All items of a list in pages: `page` gets one, and says where the next begins. A cursor that comes again is the end.
 */
export const allPages = Effect.fnUntraced(function* <A, E, R>(
  page: (after: string) => Effect.Effect<{ items: ReadonlyArray<A>; next: string | null | undefined }, E, R>,
) {
  const all: Array<A> = []
  const seen = new Set<string>([""])
  for (let after: string | null | undefined = ""; after != null;) {
    const { items, next }: { items: ReadonlyArray<A>; next: string | null | undefined } = yield* page(after)
    all.push(...items)
    after = next != null && !seen.has(next) && seen.size < maxPages ? next : null
    if (after !== null) seen.add(after)
  }
  return all
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
  /** Where the credential comes from, in words. */
  readonly source: string
  /** `undefined`: there was no response. */
  readonly status: number | undefined
  readonly requestUrl: string | undefined
  readonly words: ReadonlyMap<string, string>
}

/** What to do about a refused credential. `keys validate` reports on the key in its body, not on the credential. */
const hint = ({ credential, requestUrl = "", source }: FailedRequest) => {
  if (requestUrl.endsWith("/keys/validate")) return ""
  const isSent = credential !== undefined
  if (/\/v1\/(events|event-types|jobs|schedules|webhooks|workflows)\//.test(requestUrl) && credential !== "key") {
    return isSent
      ? ` The credential is ${source}: name the org to act for with --org, or use an API key (svc_…).`
      : " Set GATEHOUSE_TOKEN to an API key (svc_…), or to the server's ADMIN_TOKEN with --org."
  }
  return isSent
    ? ` The credential is ${source}.`
    : " Set GATEHOUSE_TOKEN to an API key (svc_…), or to the server's ADMIN_TOKEN."
}

const commandFailed = (error: unknown, request: FailedRequest): CommandFailed => {
  const { baseUrl, status, words } = request
  if (error instanceof CommandFailed) return error
  if (isApiError(error)) {
    const sentence = plain(error.error)
    if (error._tag === "InvalidRequest") return failure(inFlags(sentence, words))
    return failure(`${sentence}${error._tag === "Unauthorized" ? hint(request) : ""}`)
  }
  const refusal = refusalOf(error)
  if (refusal !== undefined) return failure(`${baseUrl}: ${plain(refusal)}`)
  if (status !== undefined) {
    return failure(
      `${baseUrl} answered with status ${status}, but the response is not Gatehouse's. Set --url or GATEHOUSE_URL to the address of the service`,
    )
  }
  if (Schema.isSchemaError(error)) return usage(inFlags(faultsOf(error), words))
  if (HttpClientError.isHttpClientError(error)) {
    return failure(
      `${baseUrl} does not answer (${transportFault(error)}). Start the service, or set --url or GATEHOUSE_URL to its address`,
    )
  }
  return failure(plain(String(error)))
}

const format = SchemaIssue.makeFormatterStandardSchemaV1({
  leafHook: (issue) => (issue._tag === "UnexpectedKey" ? "is not a field here" : faultOf(issue)),
})

/** The first faults of a value, by their paths. */
export const faultsOf = ({ issue }: Schema.SchemaError) =>
  format(issue)
    .issues.slice(0, 3)
    .map(({ message, path = [] }) => {
      const fault = faultInWords(message).replace("a valid JSON string", "valid JSON")
      return `${path.map((part) => String(typeof part === "object" ? part.key : part)).join(".")} ${fault}`.trim()
    })
    .join("; ")

/** The flag or argument of the command line, by the API field that it sets. */
const flagNames = new Map([
  ["cursor", "--cursor"],
  ["hostOwner", "the repository's owner"],
  ["hostRepo", "the repository's name"],
  ["key", "the key"],
  ["limit", "--limit"],
  ...orgLimitNames.map((name) => [`limits.${name}`, `--limit ${name}`] as const),
  ["orgId", "--org"],
  ["projectId", "--project"],
  ["rateLimit.limit", "--rate-limit"],
  ["rateLimit.window", "--window"],
  ["signing_secret", "the signing secret"],
])

/**
 * Replaces the API fields in a sentence (`limit must be …; name must be …`) with the flags and arguments that set them.
 * A place inside of JSON (`data.amount`) stays what it is.
 */
const inFlags = (sentence: string, words: ReadonlyMap<string, string> = new Map()): string =>
  sentence
    .split("; ")
    .map((fault) => fault.replace(/^[\w.]*\w/, (field) => words.get(field) ?? flagNames.get(field) ?? field))
    .join("; ")
