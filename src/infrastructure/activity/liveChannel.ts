import { Effect, Layer, Stream } from "effect"
import { SqlClient } from "effect/sql"
import { LiveChannel } from "../../domain/activity/LiveFeed.ts"
import { texts } from "../database/fragments.ts"
import { Notifications } from "../database/Notifications.ts"
import { orUnavailableWithin } from "../database/orUnavailable.ts"

const channel = "gatehouse_live"

/** The notifications of the database. Every replica gets all messages in the same order. */
export const layer = Layer.effect(
  LiveChannel,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const notifications = yield* Notifications
    return LiveChannel.of({
      send: (payloads) =>
        sql`SELECT pg_notify(${channel}, payload) FROM unnest(${texts(payloads)}) AS payload`.pipe(
          Effect.asVoid,
          orUnavailableWithin("sweep"),
        ),
      news: Stream.filter(notifications.listen(channel), (news) => news._tag !== "Proof"),
    })
  }),
)
