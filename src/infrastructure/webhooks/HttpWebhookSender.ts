import { Cache, DateTime, Duration, Effect, Exit, Layer, Option, Redacted, Schema } from "effect"
import type { ClientIdentity, OAuth2 } from "../../domain/webhooks/EndpointAuth.ts"
import { type AttemptOutcome, type WebhookRequest, WebhookSender } from "../../domain/webhooks/WebhookSender.ts"
import { clientCredentials } from "../net/clientCredentials.ts"
import { proveIdentity, readIdentity } from "../net/foreignTls.ts"
import { type SafeResponse, SafeHttp } from "../net/SafeHttp.ts"

/** Bytes of the body of an answer that are read. */
const maxReadBytes = 64 * 1024
/** Bytes of the body of an answer that are kept, and shown with the attempt. */
const maxKeptBytes = 4 * 1024

/** The kept bytes as text that PostgreSQL can store, without a character that the end cuts in two. */
const bodyText = ({ body, bytesRead }: SafeResponse) =>
  bytesRead === 0 ? "" : new TextDecoder().decode(body, { stream: bytesRead > body.length }).replaceAll("\0", "\uFFFD")

const answered = (answer: SafeResponse | undefined) => ({
  status: answer?.status ?? null,
  body: answer === undefined ? null : bodyText(answer),
  retryAfter: answer?.headers["retry-after"] ?? null,
})

/**
 * A 2xx is a success only when its body ended in time. A body that is longer than 64 KiB is not read to its end, so
 * such a 2xx is a `bad_response`. Any other status decides alone, 410 above all.
 */
const failureOf = ({ status, truncated }: SafeResponse): AttemptOutcome["failure"] =>
  truncated && status >= 200 && status < 300
    ? { kind: "bad_response", message: "The answer is longer than 64 KiB." }
    : null

/** Tokens are shared by the requests of one owner with equal settings. */
interface TokenKey {
  readonly owner: string
  readonly auth: Redacted.Redacted<OAuth2>
}

/** How long the failure of a token request is remembered. */
const failedTokenSeconds = 5
/** The life of a token whose response has no `expires_in`, and how long before its end it is replaced, in seconds. */
const defaultLifeSeconds = 300
const earlySeconds = 30
const maxLifeSeconds = 86_400
const maxTokens = 1_000

interface Token {
  readonly authorization: string
  readonly lifeSeconds: number
}

/** The response of a token endpoint (RFC 6749, section 5.1). */
const TokenResponse = Schema.fromJsonString(
  Schema.Struct({
    access_token: Schema.String.check(Schema.isPattern(/^[\x21-\x7e]{1,8192}$/)),
    expires_in: Schema.optionalKey(Schema.Unknown),
  }),
)

/** How long a token is used: as its server says, as a number or as text, and at most a day. */
const lifeOf = (expiresIn: unknown) => {
  const seconds = typeof expiresIn === "string" && expiresIn.trim() !== "" ? Number(expiresIn) : expiresIn
  const life = typeof seconds === "number" && Number.isFinite(seconds) ? seconds : defaultLifeSeconds
  return Math.min(Math.max(0, life - earlySeconds), maxLifeSeconds)
}
const TokenError = Schema.fromJsonString(Schema.Struct({ error: Schema.String.check(Schema.isPattern(/^\w{1,40}$/)) }))

/** Fetches a token by client credentials. Fails with a sentence that has nothing of the response but its error code. */
const fetchToken = (http: SafeHttp["Service"], timeout: Duration.Duration) =>
  Effect.fnUntraced(function* ({ auth, owner }: TokenKey) {
    const { client_auth = "basic", client_id, client_secret, scope, token_url } = Redacted.value(auth)
    const client = { client_id, client_secret }
    const fail = (why: string) => Effect.fail(`No token for the request: the token URL ${why}`)
    const { body, status } = yield* http
      .request({
        url: token_url,
        method: "POST",
        owner,
        headers: {
          accept: "application/json",
          "content-type": "application/x-www-form-urlencoded",
          ...(client_auth === "basic" ? { authorization: clientCredentials(client_id, client_secret) } : {}),
        },
        body: new URLSearchParams({
          grant_type: "client_credentials",
          ...(scope === undefined ? {} : { scope }),
          ...(client_auth === "body" ? client : {}),
        }).toString(),
        timeout,
        maxRead: maxReadBytes,
      })
      .pipe(Effect.catch(({ message }) => fail(`cannot be reached. ${message}`)))
    const text = new TextDecoder().decode(body)
    const token = Schema.decodeOption(TokenResponse)(text)
    // RFC 6749 has a 200 for a token alone; some servers issue with a 201, and some refuse with a 200.
    const isSuccess = status >= 200 && status < 300
    if (!isSuccess || Option.isNone(token)) {
      const code = Option.match(Schema.decodeOption(TokenError)(text), {
        onNone: () => "",
        onSome: ({ error }) => ` (${error})`,
      })
      return yield* fail(`responds with ${isSuccess ? "something that is no token" : `status ${status}`}${code}.`)
    }
    const { access_token, expires_in } = token.value
    return { authorization: `Bearer ${access_token}`, lifeSeconds: lifeOf(expires_in) } satisfies Token
  })

/** Checks a certificate and its private key. */
const checkIdentity = (identity: ClientIdentity) =>
  Effect.flatMap(Effect.fromResult(readIdentity(identity)), (checked) =>
    Effect.callback<DateTime.Utc, string>((resume) =>
      proveIdentity(checked, (fault) =>
        resume(
          fault === undefined ? Effect.succeed(DateTime.fromDateUnsafe(checked.leaf.validToDate)) : Effect.fail(fault),
        ),
      ),
    ),
  )

/**
 * Sends webhooks with `SafeHttp`: POST, no redirects, 64 KiB of the answer read and 4 KiB kept.
 *
 * @param timeout the deadline of an attempt, from the connection to the end of the body, and that of the token request
 * before it
 */
export const layer = (timeout: Duration.Duration) =>
  Layer.effect(
    WebhookSender,
    Effect.gen(function* () {
      const http = yield* SafeHttp
      const tokens = yield* Cache.makeWith(fetchToken(http, timeout), {
        capacity: maxTokens,
        timeToLive: (exit) => Duration.seconds(Exit.isSuccess(exit) ? exit.value.lifeSeconds : failedTokenSeconds),
      })

      const attempt = ({ body, headers, owner, url }: WebhookRequest, identity?: ClientIdentity) =>
        Effect.clockWith((clock) => {
          const startedAt = clock.monotonicTimeNanosUnsafe()
          const took = () => Duration.nanos(clock.monotonicTimeNanosUnsafe() - startedAt)
          const limits = { timeout, maxRead: maxReadBytes, keep: maxKeptBytes }
          return Effect.match(http.request({ url, method: "POST", headers, body, owner, identity, ...limits }), {
            onSuccess: (answer): AttemptOutcome => ({
              ...answered(answer),
              failure: failureOf(answer),
              duration: took(),
            }),
            onFailure: ({ kind, message, partial }): AttemptOutcome => ({
              ...answered(partial),
              failure: { kind, message },
              duration: took(),
            }),
          })
        })

      const withToken = (request: WebhookRequest, key: TokenKey) =>
        Cache.get(tokens, key).pipe(
          Effect.flatMap(({ authorization }) =>
            attempt({ ...request, headers: { ...request.headers, authorization } }),
          ),
          // The next attempt asks for a new one.
          Effect.tap(({ status }) => (status === 401 ? Cache.invalidate(tokens, key) : Effect.void)),
          Effect.catch((message) =>
            Effect.succeed<AttemptOutcome>({
              ...answered(undefined),
              failure: { kind: "token", message },
              duration: Duration.zero,
            }),
          ),
        )

      return WebhookSender.of({
        hostFault: http.hostFault,
        checkIdentity,
        // Without a span: it would add a fifth to the CPU of an attempt, and every attempt is recorded anyway.
        send: (request) => {
          if (request.auth === undefined) return attempt(request)
          const auth = Redacted.value(request.auth)
          return auth.type === "oauth2"
            ? withToken(request, { owner: request.owner, auth: Redacted.make(auth) })
            : attempt(request, { certificate: auth.certificate, privateKey: Redacted.make(auth.private_key) })
        },
      })
    }),
  )
