import { Effect, Layer, Stream } from "effect"
import { KeyRevocations, Revocation } from "./KeyCache.ts"
import { Notification, Notifications } from "../database/Notifications.ts"

/** The channel on which it is told that a key was deleted, or ends sooner than it did; the payload is its id. */
export const channel = "gatehouse_key_deleted"

/** Word of deleted keys by the database's notifications, which a deletion sends in its own transaction. */
export const layer = Layer.effect(
  KeyRevocations,
  Effect.map(Notifications, (notifications) =>
    notifications.listen(channel).pipe(
      Stream.map(
        Notification.$match({
          Up: () => Revocation.Hearing(),
          Down: () => Revocation.Deaf(),
          Message: ({ payload }) => Revocation.Revoked({ keyId: payload }),
        }),
      ),
    ),
  ),
)
