import { Layer } from "effect"
import * as Activity from "./Activity.ts"
import * as AuditLog from "./AuditLog.ts"
import * as crypto from "./crypto.ts"
import * as DeliveryLog from "./DeliveryLog.ts"
import * as DeliveryQueue from "./DeliveryQueue.ts"
import * as Events from "./Events.ts"
import * as EventTypes from "./EventTypes.ts"
import * as Jobs from "./Jobs.ts"
import * as JobSchedules from "./JobSchedules.ts"
import * as Orgs from "./Orgs.ts"
import * as PendingDeliveries from "./PendingDeliveries.ts"
import * as Retention from "./Retention.ts"
import * as WebhookEndpoints from "./WebhookEndpoints.ts"
import * as SigningKeys from "./SigningKeys.ts"
import { WebhookWorld } from "./WebhookWorld.ts"
import { World } from "./World.ts"

/** Every repository of the webhook interface in memory, with one world, and the orgs that own the rows. */
export const layer = Layer.mergeAll(
  Activity.layer,
  AuditLog.layer,
  DeliveryLog.layer,
  DeliveryQueue.layer,
  Events.layer,
  EventTypes.layer,
  Jobs.layer,
  JobSchedules.layer,
  Orgs.layer,
  PendingDeliveries.layer,
  Retention.layer,
  SigningKeys.layer,
  WebhookEndpoints.layer,
).pipe(Layer.provideMerge(WebhookWorld.layer), Layer.provideMerge(World.layer), Layer.provide(crypto.layer))
