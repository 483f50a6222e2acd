import { Effect, Layer, Stream } from "effect"
import { KeyRevocations, Revocation } from "./KeyCache.ts"
import { Notification, Notifications } from "../database/Notifications.ts"

/** The channel of revocations; the payload is the key's id. */
export const revocationChannel = "gatehouse_key_deleted"

/** Revocations from the database's notifications. Each is sent in the transaction that revokes the key. */
export const layer = Layer.effect(
  KeyRevocations,
  Effect.map(Notifications, (notifications) =>
    notifications.listen(revocationChannel).pipe(
      Stream.map(
        Notification.$match({
          Up: () => Revocation.Connected(),
          Down: () => Revocation.Disconnected(),
          Message: ({ payload }) => Revocation.Revoked({ keyId: payload }),
        }),
      ),
    ),
  ),
)
