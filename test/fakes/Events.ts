import { Effect, Layer } from "effect"
import { SecureRandom } from "effect/crypto"
import { eventNotFound, EventRepository } from "#src/domain/webhooks/EventRepository.ts"
import { OtherCatalogue } from "#src/domain/webhooks/EventTypes.ts"
import { endpointReceivers } from "#src/domain/webhooks/EventPatterns.ts"
import { candidates, insertEvent } from "./outbox.ts"
import { ownedBy, rowBytes, type StoredEvent, WebhookWorld } from "./WebhookWorld.ts"
import { findOr, needRoom, pageOf, rowsAfter } from "./World.ts"

const shown = ({ createdAt, id, jobId, type }: StoredEvent) => ({
  event_id: id,
  type,
  job_id: jobId,
  created_at: createdAt,
})

/** Events in memory. */
export const layer = Layer.effect(
  EventRepository,
  Effect.gen(function* () {
    const world = yield* WebhookWorld
    const random = yield* SecureRandom.SecureRandom
    const { events } = world
    const ofOrg = (orgId: string) => [...events.values()].filter((event) => event.orgId === orgId)

    return EventRepository.of({
      publish: Effect.fnUntraced(function* (orgId, asked, checked = null) {
        yield* world.needOrg(orgId)
        const version = world.strictEvents.get(orgId) ?? null
        const isRepeated = ({ idempotencyKey }: (typeof asked)[number]) =>
          idempotencyKey !== null && ofOrg(orgId).some((one) => one.idempotencyKey === idempotencyKey)
        if (version !== checked && !asked.every(isRepeated)) return yield* new OtherCatalogue({ version })
        yield* needRoom(
          world,
          "storedBytes",
          orgId,
          asked.reduce(
            (sum, { body, channels, idempotencyKey }) => sum + rowBytes("event", [body, idempotencyKey, ...channels]),
            0,
          ),
        )
        const ids: Array<string> = []
        const deliveries: Array<number> = []
        for (const event of asked) {
          const { idempotencyKey, id } = event
          const earlier = ofOrg(orgId).find(
            (other) => idempotencyKey !== null && other.idempotencyKey === idempotencyKey,
          )
          ids.push(earlier?.id ?? id)
          const to = earlier === undefined ? endpointReceivers(candidates(world, orgId, event)) : []
          deliveries.push(to.length)
          if (earlier !== undefined) continue
          yield* insertEvent(world, random, { ...event, orgId, jobId: null }, to, "")
        }
        return { ids, deliveries, hasMore: false }
      }),

      isPublished: (orgId, key) => Effect.sync(() => ofOrg(orgId).some((one) => one.idempotencyKey === key)),

      list: (orgId, type, page) =>
        Effect.sync(() =>
          rowsAfter(
            ofOrg(orgId)
              .filter((event) => type === undefined || event.type === type)
              .map(shown),
            (event) => event.event_id,
            page,
            -1,
          ),
        ),

      find: (orgId, id) =>
        Effect.map(findOr(ownedBy(events, orgId, id), eventNotFound), (event) => ({
          ...shown(event),
          channels: event.channels,
          payload: event.body,
        })),

      types: (orgId, page) =>
        Effect.sync(() => {
          const newest = new Map(
            ofOrg(orgId)
              .toSorted((a, b) => (a.id < b.id ? -1 : 1))
              .map(({ createdAt, type }) => [type, { type, last_at: createdAt }]),
          )
          return pageOf(newest.values(), ({ type }) => type, page)
        }),
    })
  }),
)
