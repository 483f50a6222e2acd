import { DateTime, Effect, Layer } from "effect"
import type { DeliveryState } from "#src/domain/webhooks/DeliveryLog.ts"
import {
  endpointNotFound,
  type EndpointRef,
  type EndpointSettings,
  externalIdTaken,
  headersOfOtherOrigin,
  sendsHeadersElsewhere,
  WebhookEndpointRepository,
} from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { cancelPending, ownedBy, type StoredEndpoint, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, keepEntry, needRoom, pageOf } from "./World.ts"

/** The private keys that sign for an endpoint. */
export const signingKeysOf = (
  { signingKeys }: WebhookWorld["Service"],
  orgId: string,
  { signature }: EndpointSettings,
  now: DateTime.Utc,
) =>
  (signature === "hmac" ? [] : (signingKeys.get(orgId) ?? []))
    .filter(({ until }) => until === null || DateTime.isGreaterThan(until, now))
    .map(({ key }) => key.privateKey)

/** An endpoint in a list. */
const listed = ({ deactivated, failingSince, row }: StoredEndpoint) => ({
  ...row,
  failing_since: failingSince,
  deactivated_reason: deactivated?.reason ?? null,
})

/** Webhook endpoints in memory. */
export const layer = Layer.effect(
  WebhookEndpointRepository,
  Effect.map(WebhookWorld, (world) => {
    const { endpoints, needOrg } = world
    const find = (orgId: string, id: string) => findOr(ownedBy(endpoints, orgId, id), endpointNotFound)
    const withExternalId = (orgId: string, externalId: string) =>
      [...endpoints.values()].find((one) => one.orgId === orgId && one.settings.externalId === externalId)
    const findBy = (orgId: string, by: EndpointRef) =>
      "id" in by ? find(orgId, by.id) : findOr(withExternalId(orgId, by.externalId), endpointNotFound)
    /** Fails when another endpoint has the external id. */
    const needFree = (orgId: string, { externalId }: Partial<EndpointSettings>, id?: string) =>
      Effect.suspend(() => {
        const taken = externalId == null ? undefined : withExternalId(orgId, externalId)
        return taken === undefined || taken.row.webhook_endpoint_id === id ? Effect.void : externalIdTaken()
      })

    return WebhookEndpointRepository.of({
      insert: ({ id, orgId, url, secret, description, active, now, ...settings }, entry) =>
        Effect.map(Effect.all([needOrg(orgId), needRoom(world, "endpoints", orgId), needFree(orgId, settings)]), () => {
          keepEntry(world, orgId, entry)
          endpoints.set(id, {
            orgId,
            row: { webhook_endpoint_id: id, url, description, active, created_at: now, updated_at: now },
            settings,
            secret,
            previous: null,
            failingSince: null,
            failures: 0,
            deactivated: active ? null : { at: now, reason: "by_request" },
          })
        }),

      list: (orgId, page, ids) =>
        Effect.sync(() => {
          const rows = [...endpoints.values()].filter((one) => one.orgId === orgId).map(listed)
          const wanted = rows.filter(({ webhook_endpoint_id: id }) => ids?.includes(id) ?? true)
          return pageOf(wanted, (row) => row.webhook_endpoint_id, page)
        }),

      get: (orgId, by) =>
        Effect.map(findBy(orgId, by), (found) => {
          const { deactivated, row, settings } = found
          const id = row.webhook_endpoint_id
          const states = [...world.deliveries.values()].filter((one) => one.row.webhook_endpoint_id === id)
          const count = (state: DeliveryState) => states.filter((one) => one.row.state === state).length
          return {
            ...listed(found),
            external_id: settings.externalId,
            metadata: settings.metadata,
            event_types: settings.eventTypes,
            channels: settings.channels,
            filter: settings.filter,
            payload: settings.payload,
            header_names: settings.headerNames,
            headers: settings.headers?.names ?? null,
            auth: settings.auth?.shown ?? null,
            batch: settings.batch,
            max_per_second: settings.maxPerSecond,
            ordered: settings.ordered,
            retry_delays: settings.retryDelays,
            signature: settings.signature,
            deactivated_at: deactivated?.at ?? null,
            deliveries: {
              pending: count("pending"),
              delivered: count("delivered"),
              failed: count("failed"),
              canceled: count("canceled"),
              skipped: count("skipped"),
            },
          }
        }),

      update: (orgId, id, changes, entry) => {
        const { url, secret, replacedSecret, previousSecretUntil, description, active, now, ...settings } = changes
        return Effect.flatMap(Effect.tap(find(orgId, id), needFree(orgId, settings, id)), (stored) => {
          const { row } = stored
          const keeps = (name: "headers" | "auth") => stored.settings[name] !== null && settings[name] === undefined
          if (url !== undefined && (keeps("headers") || keeps("auth")) && sendsHeadersElsewhere(row.url, url))
            return headersOfOtherOrigin()
          keepEntry(world, orgId, entry)
          const isOther = url !== undefined && url !== row.url
          endpoints.set(id, {
            ...stored,
            row: {
              ...row,
              url: url ?? row.url,
              description: description === undefined ? row.description : description,
              active: active ?? row.active,
              updated_at: now,
            },
            settings: { ...stored.settings, ...settings },
            secret: secret ?? stored.secret,
            previous:
              secret === undefined
                ? stored.previous
                : {
                    secret:
                      replacedSecret !== undefined && stored.previous?.secret === replacedSecret
                        ? replacedSecret
                        : stored.secret,
                    until: previousSecretUntil,
                  },
            failingSince: isOther || active === true ? null : stored.failingSince,
            failures: isOther || active === true ? 0 : stored.failures,
            deactivated:
              active === true
                ? null
                : active === false && row.active
                  ? { at: now, reason: "by_request" }
                  : stored.deactivated,
          })
          if (active === false) cancelPending(world, id, now)
          return Effect.void
        })
      },

      deactivate: (orgId, id, now, entry) =>
        Effect.sync(() => {
          const stored = ownedBy(endpoints, orgId, id)
          if (stored?.row.active !== true) return false
          keepEntry(world, orgId, entry)
          endpoints.set(id, {
            ...stored,
            row: { ...stored.row, active: false, updated_at: now },
            deactivated: { at: now, reason: "failing" },
          })
          cancelPending(world, id, now)
          return true
        }),

      remove: (orgId, id, now, entry) =>
        Effect.map(find(orgId, id), () => {
          keepEntry(world, orgId, entry)
          endpoints.delete(id)
          cancelPending(world, id, now)
        }),

      findForSending: (orgId, id, now) =>
        Effect.map(find(orgId, id), ({ row, secret, previous, settings }) => ({
          url: row.url,
          headers: settings.headers?.stored ?? null,
          auth: settings.auth?.stored ?? null,
          batch: settings.batch,
          payload: settings.payload,
          headerNames: settings.headerNames,
          eventTypes: settings.eventTypes,
          signingKeys: signingKeysOf(world, orgId, settings, now),
          secrets:
            previous !== null && DateTime.isGreaterThan(previous.until, now) ? [secret, previous.secret] : [secret],
        })),
    })
  }),
)
