import { Context, DateTime, Effect, Layer, Schema } from "effect"
import { SecureRandom } from "effect/crypto"
import { InvalidRequest, Unavailable } from "../Errors.ts"
import { cutRows, nextCursor, nextCursorIfMore, type Page } from "../Page.ts"
import { byteLength } from "../orgs/StoredBytes.ts"
import { currentTenant } from "../Principal.ts"
import { AnyJson, atMost, NonEmptyText } from "../Schemas.ts"
import { type NewEvent, envelopeBody, makeNonce } from "../ServiceEvent.ts"
import { EventRepository } from "./EventRepository.ts"
import { EventType, PublishedChannels } from "./EventPatterns.ts"
import { makeStrictCheck } from "./EventTypes.ts"
import { makeBudget } from "./jsonSchema.ts"
import { Wakeups } from "../Wakeups.ts"

/** The largest `data` of an event, in bytes of JSON. */
export const maxDataBytes = 256 * 1024
/** The events of one batch. */
const maxBatch = 100

export const PublishEvent = Schema.Struct({
  type: EventType,
  data: AnyJson.annotateKey({ description: "Any JSON value, at most 256 KiB and 1,000 levels deep." }),
  idempotency_key: Schema.optionalKey(NonEmptyText.check(atMost(255))).annotate({
    description:
      "Makes the request safe to repeat: a request with the key of an earlier event returns that event and ignores all other " +
      "fields. The key is kept as long as the event.",
    examples: ["invoice-in_42-paid"],
  }),
  channels: Schema.optionalKey(
    PublishedChannels.annotate({
      description:
        "Of the endpoints with channels, only those that have one of these receive the event: up to 10. None: none of those.",
      examples: [["project_42"]],
    }),
  ),
}).annotate({
  identifier: "PublishEvent",
  examples: [{ type: "invoice.paid", data: { invoice: "in_42", amount: 1200 }, idempotency_key: "invoice-in_42-paid" }],
})

export const PublishEvents = Schema.Struct({
  events: Schema.Array(PublishEvent)
    .check(
      Schema.isMinLength(1, { expected: "at least 1 event" }),
      Schema.isMaxLength(maxBatch, { expected: `at most ${maxBatch} events` }),
    )
    .annotate({ description: `1 to ${maxBatch} events. All of them are published, or none.` }),
}).annotate({ identifier: "PublishEvents" })

/** The JSON text of an event's data. Fails when it is too large. */
export const dataText = (data: unknown, field: string) => {
  const text = JSON.stringify(data)
  return byteLength(text) <= maxDataBytes
    ? Effect.succeed(text)
    : Effect.fail(new InvalidRequest({ error: `${field} must have at most 256 KiB of JSON.` }))
}

/** Makes the event that a request asks for. */
const newEvent = Effect.fnUntraced(function* (
  random: SecureRandom.SecureRandom["Service"],
  { type, channels, data, idempotency_key }: typeof PublishEvent.Type,
  createdAt: DateTime.Utc,
  field: string,
) {
  const text = yield* dataText(data, field)
  const event = { id: yield* random.ulid, type, createdAt }
  const nonce = yield* makeNonce(random)
  return {
    ...event,
    body: envelopeBody(event, nonce, text),
    idempotencyKey: idempotency_key ?? null,
    channels: [...new Set(channels)],
  } satisfies NewEvent
})

/** How often events are checked again because the catalogue has changed meanwhile. */
const maxRetries = 5
const catalogueChanges = new Unavailable({ error: "The catalogue of event types is changing; try again." })

/** The events of the current tenant. */
export class Events extends Context.Service<Events>()("gatehouse/domain/webhooks/Events", {
  make: Effect.gen(function* () {
    const repository = yield* EventRepository
    const random = yield* SecureRandom.SecureRandom
    const wakeups = yield* Wakeups
    const strict = yield* makeStrictCheck

    /** Publishes what is valid for a version of the catalogue, if that is the current one when it is written. */
    const publishChecked = Effect.fnUntraced(function* (
      orgId: string,
      asked: ReadonlyArray<typeof PublishEvent.Type>,
      events: ReadonlyArray<NewEvent>,
      fieldOf: (n: number) => string,
    ) {
      const version = strict.versionOf(orgId)
      const budget = makeBudget()
      for (const [n, { data, idempotency_key: key, type }] of version === null ? [] : asked.entries()) {
        // Others have their turn between the checks of a batch.
        if (n > 0) yield* Effect.yieldNow
        const error = yield* strict.faultOf({ orgId, version: version! }, type, data, fieldOf(n), budget)
        // A repeated request gets its earlier event, whatever the catalogue is now.
        const isRepeated = error && key !== undefined && (yield* repository.isPublished(orgId, key))
        if (error && !isRepeated) return yield* new InvalidRequest({ error })
      }
      return yield* repository.publish(orgId, events, version)
    })

    return {
      /**
       * Publishes events, all or nothing. Returns their ids and how many deliveries each makes, in the same order. Also
       * returns how many of them are of an earlier event with the same `idempotency_key`, which makes none.
       */
      publish: Effect.fn("Events.publish")(function* (
        asked: ReadonlyArray<typeof PublishEvent.Type>,
        fieldOf: (n: number) => string,
      ) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const events = yield* Effect.forEach(asked, (event, n) => newEvent(random, event, now, fieldOf(n)))
        const { deliveries, hasMore, ids } = yield* publishChecked(orgId, asked, events, fieldOf).pipe(
          Effect.tapErrorTag("OtherCatalogue", ({ version }) => Effect.sync(() => strict.remember(orgId, version))),
          Effect.retry({ while: ({ _tag }) => _tag === "OtherCatalogue", times: maxRetries }),
          Effect.catchTag("OtherCatalogue", () => Effect.fail(catalogueChanges)),
        )
        yield* wakeups.deliveries
        if (hasMore) yield* wakeups.sweeps
        return { ids, deliveries, repeated: ids.filter((id, n) => id !== events[n]!.id).length }
      }),

      list: Effect.fn("Events.list")(function* (query: Page & { readonly type?: string | undefined }) {
        const orgId = yield* currentTenant
        // An event in a list has a few hundred bytes, so only `limit` ends a page.
        const page = cutRows(yield* repository.list(orgId, query.type, query), query.limit)
        return { events: page.items, next_cursor: nextCursor(page, (event) => event.event_id) }
      }),

      get: Effect.fn("Events.get")(function* (eventId: string) {
        return yield* repository.find(yield* currentTenant, eventId)
      }),

      /** Every type of the org's events, with the time of its newest event. */
      types: Effect.fn("Events.types")(function* (page: Page) {
        const found = yield* repository.types(yield* currentTenant, page)
        return { types: found.items, ...nextCursorIfMore(found, ({ type }) => type) }
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}
