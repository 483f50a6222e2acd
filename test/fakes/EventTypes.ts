import { Effect, Layer } from "effect"
import {
  eventTypeExists,
  eventTypeNotFound,
  EventTypeRepository,
  maxEventTypes,
  OtherType,
  tooManyEventTypes,
} from "#src/domain/webhooks/EventTypes.ts"
import { WebhookWorld } from "./WebhookWorld.ts"
import { findOr, keepEntry, needRoom, pageOf } from "./World.ts"

/** Catalogues of event types in memory. */
export const layer = Layer.effect(
  EventTypeRepository,
  Effect.map(WebhookWorld, (world) => {
    const { strictEvents } = world
    const typesOf = (orgId: string) => {
      const own = world.eventTypes.get(orgId) ?? new Map()
      world.eventTypes.set(orgId, own)
      return own
    }
    const changed = (orgId: string, entry: Parameters<typeof keepEntry>[2]) => {
      keepEntry(world, orgId, entry)
      if (strictEvents.has(orgId)) strictEvents.set(orgId, entry.id)
    }

    return EventTypeRepository.of({
      insert: Effect.fnUntraced(function* (orgId, type, entry) {
        yield* world.needOrg(orgId)
        yield* needRoom(world, "storedBytes", orgId, 0)
        if (typesOf(orgId).has(type.name)) return yield* eventTypeExists()
        if (typesOf(orgId).size >= maxEventTypes) return yield* tooManyEventTypes()
        typesOf(orgId).set(type.name, type)
        changed(orgId, entry)
      }),

      update: Effect.fnUntraced(function* (orgId, before, type, entry) {
        if (typesOf(orgId).get(type.name)?.updated_at !== before.updated_at) return yield* new OtherType()
        typesOf(orgId).set(type.name, type)
        changed(orgId, entry)
      }),

      remove: Effect.fnUntraced(function* (orgId, name, entry) {
        if (!typesOf(orgId).delete(name)) return yield* eventTypeNotFound()
        changed(orgId, entry)
      }),

      list: (orgId, page) => Effect.sync(() => pageOf(typesOf(orgId).values(), ({ name }) => name, page)),
      find: (orgId, name) => findOr(typesOf(orgId).get(name), eventTypeNotFound),
      forCheck: (orgId, name) =>
        Effect.sync(() => ({ version: strictEvents.get(orgId) ?? null, schemas: typesOf(orgId).get(name)?.schemas })),
    })
  }),
)
