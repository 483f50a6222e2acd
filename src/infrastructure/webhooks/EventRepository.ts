import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { cutRows } from "../../domain/Page.ts"
import { EventRepository } from "../../domain/webhooks/EventRepository.ts"
import { inOrgs } from "../database/buckets.ts"
import { orUnavailable } from "../database/orUnavailable.ts"
import { OrgUsage } from "../orgs/OrgUsage.ts"
import * as StoredBytes from "../orgs/storedBytes.ts"
import { findEvent, listEvents, listTypes } from "./listEvents.ts"
import * as PublishEvents from "./publishEvents.ts"

/** Events in PostgreSQL. */
export const layer = Layer.effect(
  EventRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const publish = yield* PublishEvents.make(sql, yield* StoredBytes.make, yield* OrgUsage)

    const repository = EventRepository.of({
      publish,
      list: (orgId, type, page) => orUnavailable(listEvents(sql, orgId, type, page)),
      find: (orgId, eventId) => orUnavailable(findEvent(sql, orgId, eventId)),
      types: (orgId, page) =>
        Effect.map(orUnavailable(listTypes(sql, orgId, page)), (types) => cutRows(types, page.limit)),
    })
    return inOrgs(sql, repository, ["publish", "list", "find", "types"])
  }),
).pipe(Layer.provide(OrgUsage.layer))
