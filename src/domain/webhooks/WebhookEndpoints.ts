import { Context, DateTime, Effect, Layer, Option, Redacted, Struct } from "effect"
import { SecureRandom } from "effect/crypto"
import { Cipher } from "../Cipher.ts"
import { Conflict, InvalidRequest } from "../Errors.ts"
import { nextCursorIfMore, wholeListPage } from "../Page.ts"
import { currentTenant } from "../Principal.ts"
import { healthOf, healthRanges } from "../activity/Activity.ts"
import { ActivityRepository } from "../activity/ActivityRepository.ts"
import { Publish } from "../activity/LiveFeed.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { withoutTokens } from "../audit/withoutTokens.ts"
import { StoredJson } from "../StoredJson.ts"
import { withoutUndefined } from "../withoutUndefined.ts"
import type { EndpointAuth, ShownAuth } from "./EndpointAuth.ts"
import { batchBody, batchType, deactivated, jobEventBody, sentBody } from "./Event.ts"
import { envelopeBody, makeNonce } from "../ServiceEvent.ts"
import { isServiceType, testTypeOf } from "./EventPatterns.ts"
import { dataText } from "./Events.ts"
import { EventTypeRepository } from "./EventTypes.ts"
import { checkReceiverUrl, ReceiverUrlRules } from "../callableUrls.ts"
import { isDelivered } from "./RetryDecision.ts"
import { exampleData } from "./serviceEventData.ts"
import {
  prepareSign,
  secretGraceHours,
  Signer,
  SigningKeys,
  signingSecretBytes,
  signingSecretOf,
} from "./Signatures.ts"
import { Wakeups } from "../Wakeups.ts"
import type {
  CreateWebhookEndpoint,
  ListWebhookEndpoints,
  TestWebhookEndpoint,
  UpdateWebhookEndpoint,
} from "./WebhookEndpoint.ts"
import {
  defaultSettings,
  type EndpointRef,
  type EndpointSettings,
  WebhookEndpointRepository,
} from "./WebhookEndpointRepository.ts"
import { WebhookSender } from "./WebhookSender.ts"

/** The webhook endpoints of the current tenant. */
export class WebhookEndpoints extends Context.Service<WebhookEndpoints>()("gatehouse/domain/WebhookEndpoints", {
  make: Effect.gen(function* () {
    const repository = yield* WebhookEndpointRepository
    const activity = yield* ActivityRepository
    const publish = yield* Publish
    const cipher = yield* Cipher
    const random = yield* SecureRandom.SecureRandom
    const rules = yield* ReceiverUrlRules
    const audit = yield* AuditLog
    const wakeups = yield* Wakeups
    const signingKeys = yield* SigningKeys
    const sendTest = yield* makeSendTest
    const { checkIdentity, hostFault } = yield* WebhookSender
    const checks = { checkIdentity, rules }
    const tell = (orgId: string, endpointId: string, change: string) =>
      publish(() => [{ topic: "endpoint", orgId, data: { endpointId, change } }])

    /**
     * Why no delivery will reach a new URL, as far as its host says. The caller waits at most a second for its name.
     */
    const warningOf = (url: string | undefined): Effect.Effect<Warning> =>
      url === undefined
        ? Effect.succeed({})
        : hostFault(url).pipe(
            Effect.timeoutOption("1 second"),
            Effect.map(
              Option.match({
                onNone: () => ({}),
                onSome: (fault) => (fault === null ? {} : { warning: `Nothing can be sent to this url now: ${fault}` }),
              }),
            ),
          )

    return {
      /** Creates an endpoint. The warning says why nothing can be sent to its URL now. */
      create: Effect.fn("WebhookEndpoints.create")(function* (input: typeof CreateWebhookEndpoint.Type) {
        const orgId = yield* currentTenant
        yield* checkReceiverUrl("url", input.url, rules)
        const id = yield* random.ulid
        const { url, active = true, description = null } = input
        const made =
          input.generate_signing_secret === true
            ? signingSecretOf(yield* random.randomBytes(signingSecretBytes))
            : undefined
        const secret = yield* cipher.encrypt(Redacted.make(made ?? input.signing_secret!), id)
        const given = yield* settingsOf(cipher, checks, id, input)
        const settings = { ...defaultSettings, ...given }
        if (settings.signature === "ed25519") yield* signingKeys.ensure
        const endpoint = { id, orgId, url, secret, description, active, now: yield* DateTime.now, ...settings }
        const details = { host: new URL(url).host, active, ...settingDetails(given) }
        const entry = yield* audit.entry({ action: "webhook_endpoint.create", target: id, details })
        yield* repository.insert(endpoint, entry)
        tell(orgId, id, "created")
        return {
          webhook_endpoint_id: id,
          ...(made === undefined ? {} : { signing_secret: made }),
          ...(yield* warningOf(url)),
        }
      }),

      list: Effect.fn("WebhookEndpoints.list")(function* (asked: ListWebhookEndpoints = {}) {
        const orgId = yield* currentTenant
        const { webhook_endpoint_ids: ids, ...page } = asked
        const found = yield* repository.list(orgId, wholeListPage(page), ids)
        return { webhook_endpoints: found.items, ...nextCursorIfMore(found, (one) => one.webhook_endpoint_id) }
      }),

      /** An endpoint with its health. */
      get: Effect.fn("WebhookEndpoints.get")(function* (by: EndpointRef) {
        const orgId = yield* currentTenant
        const endpoint = yield* repository.get(orgId, by)
        const id = endpoint.webhook_endpoint_id
        const ranges = healthRanges(yield* DateTime.now)
        const counted = yield* activity.attempts(orgId, id, ranges)
        const health = ranges.map(({ since }) =>
          healthOf(
            since,
            counted.filter((row) => DateTime.Equivalence(row.since, since)),
          ),
        )
        return { ...endpoint, health }
      }),

      update: Effect.fn("WebhookEndpoints.update")(function* (input: typeof UpdateWebhookEndpoint.Type) {
        const orgId = yield* currentTenant
        if (input.url !== undefined) yield* checkReceiverUrl("url", input.url, rules)
        const now = yield* DateTime.now
        const { id, url, description, active, signing_secret: secret } = input
        const before =
          url === undefined && secret === undefined ? undefined : yield* repository.findForSending(orgId, id, now)
        const replacement = secret === undefined ? undefined : yield* newSecret(cipher, id, secret, before!.secrets[0]!)
        const previousSecretUntil = DateTime.add(now, { hours: secretGraceHours })
        const settings = yield* settingsOf(cipher, checks, id, input)
        if (settings.signature === "ed25519") yield* signingKeys.ensure
        const details = {
          ...updateDetails(input, before),
          ...settingDetails(settings),
          secretChanged: replacement !== undefined,
        }
        const event = active === false ? deactivated(id, "by_request") : undefined
        const entry = yield* audit.entry({ action: "webhook_endpoint.update", target: id, details, event })
        const secrets = { secret: undefined, ...replacement, previousSecretUntil }
        const changes = { url, ...secrets, description, active, now, ...settings }
        yield* repository.update(orgId, id, changes, entry)
        tell(orgId, id, "updated")
        if (active === false) yield* wakeups.sweeps
        // Without a limit or an order, what waits for them can be sent now.
        yield* wakeups.deliveries
        return yield* warningOf(url)
      }),

      remove: Effect.fn("WebhookEndpoints.remove")(function* (id: string) {
        const orgId = yield* currentTenant
        const entry = yield* audit.entry({ action: "webhook_endpoint.delete", target: id, details: {} })
        yield* repository.remove(orgId, id, yield* DateTime.now, entry)
        tell(orgId, id, "deleted")
        yield* wakeups.sweeps
      }),

      /** Sends a test to the endpoint and returns the response. Fails with a `Conflict` when too many are in flight. */
      test: Effect.fn("WebhookEndpoints.test")(function* (input: typeof TestWebhookEndpoint.Type) {
        const orgId = yield* currentTenant
        return yield* sendTest(orgId, input)
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** What a creation or change adds to its answer: why no delivery will reach the URL, in a sentence. */
interface Warning {
  readonly warning?: string
}

const updateDetails = (
  { url, active, description }: typeof UpdateWebhookEndpoint.Type,
  before: { readonly url: string } | undefined,
) => ({
  ...(url === undefined || before === undefined || url === before.url
    ? {}
    : { host: new URL(url).host, url: withoutTokens(url), urlBefore: withoutTokens(before.url) }),
  ...withoutUndefined({ active, description }),
})

type SettingFields = typeof CreateWebhookEndpoint.Type | typeof UpdateWebhookEndpoint.Type

/**
 * The settings that a request names, with the headers encrypted for the endpoint. An absent field is absent in the
 * result.
 */
const settingsOf = Effect.fnUntraced(function* (
  cipher: Cipher["Service"],
  checks: AuthChecks,
  id: string,
  input: SettingFields,
) {
  const { auth, channels, header_names, headers, ordered, payload, signature } = input
  return withoutUndefined({
    eventTypes: input.event_types,
    headers: headers && {
      stored: yield* cipher.encrypt(Redacted.make(JSON.stringify(headers)), id),
      names: Object.keys(headers),
    },
    auth: auth && {
      stored: yield* cipher.encrypt(Redacted.make(JSON.stringify(auth)), id),
      shown: yield* checkAuth(checks, auth),
    },
    maxPerSecond: input.max_per_second,
    ordered: ordered === null ? defaultSettings.ordered : ordered,
    retryDelays: input.retry_delays,
    signature: signature === null ? defaultSettings.signature : signature,
    externalId: input.external_id,
    metadata: input.metadata,
    channels: channels && [...new Set(channels)],
    filter: input.filter,
    batch: input.batch,
    payload: payload === null ? defaultSettings.payload : payload,
    headerNames: header_names === null ? defaultSettings.headerNames : header_names,
  } satisfies { readonly [S in keyof EndpointSettings]: EndpointSettings[S] | undefined })
})

interface AuthChecks {
  readonly rules: typeof ReceiverUrlRules.Service
  readonly checkIdentity: WebhookSender["Service"]["checkIdentity"]
}

/** Checks how an endpoint is authorized, and returns what may be shown of it. */
const checkAuth = Effect.fnUntraced(function* ({ checkIdentity, rules }: AuthChecks, auth: EndpointAuth) {
  if (auth.type === "oauth2") {
    yield* checkReceiverUrl("auth.token_url", auth.token_url, rules)
    return Struct.pick(auth, ["type", "token_url", "client_id", "scope", "client_auth"]) satisfies ShownAuth
  }
  const { certificate, private_key, type } = auth
  const expiresAt = yield* checkIdentity({ certificate, privateKey: Redacted.make(private_key) }).pipe(
    Effect.mapError((fault) => new InvalidRequest({ error: `auth.${fault}` })),
  )
  return { type, certificate_expires_at: DateTime.formatIso(expiresAt) } satisfies ShownAuth
})

/** The settings in the audit log: headers only by their names, and without the caller's metadata. */
const settingDetails = ({ auth, headers, ...settings }: Partial<EndpointSettings>) =>
  withoutUndefined({
    ...Struct.omit(settings, ["metadata"]),
    auth: auth && auth.shown.type,
    headers: headers && headers.names,
  })

/** An update's new secret, encrypted; `undefined` when it repeats the current one. */
const newSecret = Effect.fnUntraced(function* (
  cipher: Cipher["Service"],
  id: string,
  secret: string,
  replacedSecret: string,
) {
  // A current secret that cannot be decrypted does not prevent a new one.
  const current = yield* Effect.option(
    Effect.catchDefect(cipher.decrypt(replacedSecret, id), () => Effect.fail("unreadable")),
  )
  if (Option.isSome(current) && Redacted.value(current.value) === secret) return undefined
  return { secret: yield* cipher.encrypt(Redacted.make(secret), id), replacedSecret }
})

/** The tests of one org's endpoints that may be in flight in this process. */
const maxTestsPerOrg = 4

const sameEndpoint = () => new Conflict({ error: "A test of this endpoint is in flight; wait for its answer." })
const sameOrg = () =>
  new Conflict({ error: `${maxTestsPerOrg} tests of your endpoints are in flight; wait for one of their answers.` })

/** Limits the endpoint tests in flight in this process: one for each endpoint, and `maxTestsPerOrg` for each org. */
const makeLimit = () => {
  // The ids of endpoints by org. An org with no test in flight has no entry.
  const inFlight = new Map<string, Set<string>>()

  const end = (orgId: string, endpointId: string) => {
    const ids = inFlight.get(orgId)!
    ids.delete(endpointId)
    if (ids.size === 0) inFlight.delete(orgId)
  }

  return <A, E, R>(
    orgId: string,
    endpointId: string,
    test: Effect.Effect<A, E, R>,
  ): Effect.Effect<A, E | Conflict, R> =>
    Effect.acquireUseRelease(
      Effect.suspend(() => {
        const ids = inFlight.get(orgId) ?? new Set()
        if (ids.has(endpointId)) return Effect.fail(sameEndpoint())
        if (ids.size >= maxTestsPerOrg) return Effect.fail(sameOrg())
        inFlight.set(orgId, ids.add(endpointId))
        return Effect.void
      }),
      () => test,
      () => Effect.sync(() => end(orgId, endpointId)),
    )
}

/** The body of a test event: with the data of the request, or else made-up data of its type. */
const testBody = Effect.fnUntraced(function* (
  random: SecureRandom.SecureRandom["Service"],
  type: string,
  data: unknown,
  createdAt: DateTime.Utc,
) {
  const nonce = yield* makeNonce(random)
  const id = yield* random.ulid
  if (type === "job.failed" && data !== undefined) {
    return yield* new InvalidRequest({ error: "data must be absent: a job.failed has an error and no result." })
  }
  const example = isServiceType(type) ? exampleData(type) : { test: true }
  const text = yield* dataText(data === undefined ? example : data, "data")
  const job = { job_id: id, workflow: "test", deployment_id: null, mapped_stack: null }
  if (type === "job.failed") return jobEventBody({ ...job, status: "failed", result: null, error: "A test." }, nonce)
  if (type === "job.completed") {
    return jobEventBody({ ...job, status: "completed", result: new StoredJson(text), error: null }, nonce)
  }
  return envelopeBody({ id, type, createdAt }, nonce, text)
})

/**
 * Tests endpoints: sends a signed event, stores nothing, and returns what was sent and the response. Fails with a
 * `Conflict` when too many tests are in flight.
 */
const makeSendTest = Effect.gen(function* () {
  const repository = yield* WebhookEndpointRepository
  const cipher = yield* Cipher
  const signer = yield* Signer
  const sender = yield* WebhookSender
  const random = yield* SecureRandom.SecureRandom
  const catalogue = yield* EventTypeRepository
  const limited = makeLimit()
  /** The example of a type of the catalogue. */
  const exampleOf = (orgId: string, type: string) =>
    catalogue.find(orgId, type).pipe(
      Effect.map(({ example }) => example ?? undefined),
      Effect.catchTag("NotFound", () => Effect.undefined),
    )

  const send = Effect.fnUntraced(function* (orgId: string, { data, id, type }: typeof TestWebhookEndpoint.Type) {
    const now = yield* DateTime.now
    const { eventTypes, headerNames, url, ...stored } = yield* repository.findForSending(orgId, id, now)
    const event = type ?? testTypeOf(eventTypes)
    const example = data === undefined ? yield* exampleOf(orgId, event) : data
    const one = sentBody(stored.payload, yield* testBody(random, event, example, now))
    const payload = stored.batch === null ? one : batchBody([one])
    const { auth, sign } = yield* prepareSign(cipher, signer, {
      secrets: stored.secrets.map((secret) => ({ stored: secret, owner: id })),
      signingKeys: stored.signingKeys.map((key) => ({ stored: key, owner: orgId })),
      headers: stored.headers === null ? null : { stored: stored.headers, owner: id },
      auth: stored.auth === null ? null : { stored: stored.auth, owner: id },
    })
    const timestamp = Math.floor(DateTime.toEpochMillis(now) / 1000)
    const sentType = stored.batch === null ? event : batchType
    const headers = sign({ deliveryId: yield* random.ulid, event: sentType, body: payload, timestamp, headerNames })
    const outcome = yield* sender.send({ url, owner: orgId, headers, body: payload, auth })
    return {
      event,
      payload,
      delivered: isDelivered(outcome),
      status: outcome.status,
      body: outcome.body,
      error: outcome.failure?.message ?? null,
    }
  })

  return (orgId: string, input: typeof TestWebhookEndpoint.Type) => limited(orgId, input.id, send(orgId, input))
})
