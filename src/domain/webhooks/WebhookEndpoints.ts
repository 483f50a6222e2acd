import { Context, DateTime, Effect, Layer, Option, Redacted, Struct } from "effect"
import { SecureRandom } from "effect/crypto"
import { Cipher } from "../Cipher.ts"
import { InvalidRequest } from "../Errors.ts"
import { nextCursorIfMore, wholeListPage } from "../Page.ts"
import { currentTenant } from "../Principal.ts"
import { healthOf, healthRanges } from "../activity/Activity.ts"
import { ActivityRepository } from "../activity/ActivityRepository.ts"
import { Publish } from "../activity/LiveFeed.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import { withoutTokens } from "../audit/withoutTokens.ts"
import { withoutUndefined } from "../withoutUndefined.ts"
import type { EndpointAuth, ShownAuth } from "./EndpointAuth.ts"
import { deactivated } from "./Event.ts"
import { checkReceiverUrl, ReceiverUrlRules } from "../callableUrls.ts"
import { secretGraceHours, SigningKeys, signingSecretBytes, signingSecretOf } from "./Signatures.ts"
import { Wakeups } from "../Wakeups.ts"
import {
  type CreateWebhookEndpoint,
  endpointDefaults,
  type ListWebhookEndpoints,
  type TestWebhookEndpoint,
  type UpdateWebhookEndpoint,
} from "./WebhookEndpoint.ts"
import {
  defaultSettings,
  type EndpointRef,
  type EndpointSettings,
  WebhookEndpointRepository,
} from "./WebhookEndpointRepository.ts"
import { makeSendTest } from "./testEndpoint.ts"
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
    ordered: ordered === null ? endpointDefaults.ordered : ordered,
    retryDelays: input.retry_delays,
    signature: signature === null ? endpointDefaults.signature : signature,
    externalId: input.external_id,
    metadata: input.metadata,
    channels: channels && [...new Set(channels)],
    filter: input.filter,
    batch: input.batch,
    payload: payload === null ? endpointDefaults.payload : payload,
    headerNames: header_names === null ? endpointDefaults.headerNames : header_names,
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
