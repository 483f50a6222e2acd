import { assert } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { AuditLog } from "#src/domain/audit/AuditLog.ts"
import type { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import { Unavailable } from "#src/domain/Errors.ts"
import { PendingDeliveries, PendingLimit } from "#src/domain/webhooks/PendingLimit.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import { WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as fakes from "../../fakes/webhooks.ts"
import { it } from "../../support/it.ts"

const over = { limit: 3, pending: 4 }

it.effect(
  "an org over its limit of pending deliveries loses an endpoint, and a failure in one org does not affect others",
  function* () {
    const log: Array<string> = []
    let sweepsWoken = 0
    const entries: Array<AuditEntry & { readonly orgId: string }> = []
    const services = Layer.mergeAll(
      Layer.succeed(PendingDeliveries, {
        overLimit: Effect.succeed([
          { ...over, orgId: "a", endpointId: "away" },
          { ...over, orgId: "b", endpointId: null },
          { ...over, orgId: "c", endpointId: "gone" },
          { ...over, orgId: "d", endpointId: "slow" },
        ]),
      }),
      Layer.mock(Wakeups, { sweeps: Effect.sync(() => void sweepsWoken++) }),
      Layer.mock(WebhookEndpointRepository, {
        deactivate: (orgId, id, _now, entry) => {
          if (id === "away")
            return Effect.fail(new Unavailable({ error: "The database cannot be reached; try again." }))
          if (id === "gone") return Effect.succeed(false)
          entries.push({ ...entry, orgId })
          return Effect.succeed(true)
        },
      }),
    )
    const { enforce } = yield* Effect.provide(
      PendingLimit,
      PendingLimit.layer.pipe(
        Layer.provide([services, AuditLog.layer]),
        Layer.provide(fakes.layer),
        Layer.provide(crypto.layer),
      ),
    )
    const logger = Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))])
    yield* Effect.provide(enforce, logger)
    assert.deepStrictEqual(
      entries.map(({ orgId, actor, action, target, details }) => ({ orgId, actor, action, target, details })),
      [
        {
          orgId: "d",
          actor: "service",
          action: "webhook_endpoint.deactivate",
          target: "slow",
          details: { reason: "failing" },
        },
      ],
    )
    // A sweep cancels the rest of the endpoint's backlog in the background.
    assert.strictEqual(sweepsWoken, 1)
    assert.deepStrictEqual(
      log.map((line) => /orgId=(\w)/.exec(line)?.[1]),
      ["a", "b", "d"],
    )
  },
)
