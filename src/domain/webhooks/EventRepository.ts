import { Context, type Effect } from "effect"
import { type LimitReached, NotFound, type Unavailable } from "../Errors.ts"
import type { Found, Page } from "../Page.ts"
import type { OtherCatalogue } from "./EventTypes.ts"
import type { Event, EventDetail, SeenEventType } from "./Event.ts"
import type { NewEvent } from "../ServiceEvent.ts"

/** The result of publishing events of one request. */
export interface Published {
  /** The ids in the order of the events: of an earlier event with the same idempotency key, or of the new one. */
  readonly ids: ReadonlyArray<string>
  /** How many deliveries each event makes, those of a sweep included; 0 for an earlier event. */
  readonly deliveries: ReadonlyArray<number>
  /** Whether a sweep inserts the deliveries to the rest of many endpoints. */
  readonly hasMore: boolean
}

/** The events of orgs. */
export class EventRepository extends Context.Service<
  EventRepository,
  {
    /**
     * Writes events with their deliveries, all or nothing. An earlier event of the org with the same idempotency key
     * stays, and nothing is written for the new one. Fails when the org has reached its limit of stored bytes.
     *
     * @param checked the version of the catalogue that the events were checked with; default: they were not
     */
    readonly publish: (
      orgId: string,
      events: ReadonlyArray<NewEvent>,
      checked?: string | null,
    ) => Effect.Effect<Published, LimitReached | OtherCatalogue | Unavailable>
    /** Whether an event with this idempotency key exists. */
    readonly isPublished: (orgId: string, idempotencyKey: string) => Effect.Effect<boolean, Unavailable>
    /** Events of the org, newest first, up to `limit + 1`. */
    readonly list: (
      orgId: string,
      type: string | undefined,
      page: Page,
    ) => Effect.Effect<ReadonlyArray<Event>, Unavailable>
    readonly find: (orgId: string, eventId: string) => Effect.Effect<EventDetail, NotFound | Unavailable>
    /** The types of the org's events in alphabetical order, after `cursor`. */
    readonly types: (orgId: string, page: Page) => Effect.Effect<Found<SeenEventType>, Unavailable>
  }
>()("gatehouse/domain/webhooks/EventRepository") {}

export const eventNotFound = () => new NotFound({ error: "There is no such event." })
