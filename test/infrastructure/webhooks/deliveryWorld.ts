import { Clock, Context, DateTime, Duration, Effect, Exit, Fiber, Latch, Layer, Logger, Redacted, Scope } from "effect"
import { TestClock } from "effect/testing"
import { Cipher } from "#src/domain/Cipher.ts"
import { type AttemptRecord, type Claim, DeliveryQueue } from "#src/domain/webhooks/DeliveryQueue.ts"
import { Dispatcher } from "#src/domain/webhooks/Dispatcher.ts"
import { Unavailable } from "#src/domain/Errors.ts"
import { RetryDelays } from "#src/domain/webhooks/RetryDecision.ts"
import { type Signable, Signer } from "#src/domain/webhooks/Signatures.ts"
import { defaultSettings } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { Wakeups } from "#src/domain/Wakeups.ts"
import { type AttemptOutcome, type WebhookRequest, WebhookSender } from "#src/domain/webhooks/WebhookSender.ts"
import * as DeliveryWorker from "#src/infrastructure/webhooks/DeliveryWorker.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as Fakes from "../../fakes/webhooks.ts"
import { WebhookWorld } from "../../fakes/WebhookWorld.ts"
import { answer } from "../../fakes/WebhookSender.ts"

/** Lets everything run that needs no time. */
export const settle = Effect.repeat(Effect.yieldNow, { times: 500 })
export const adjust = (duration: Duration.Input) =>
  Effect.andThen(Effect.andThen(settle, TestClock.adjust(duration)), settle)

export const unavailable = Effect.fail(new Unavailable({ error: "The database cannot be reached; try again." }))

interface Sent {
  readonly id: string
  readonly lane: string
}

/** The outbox in memory and a sender with set answers, with workers over them, and a record of everything they did. */
export const makeWorld = Effect.gen(function* () {
  const fakes = yield* Layer.build(Layer.merge(Fakes.layer, Wakeups.layer))
  const { deliveries, endpoints } = Context.get(fakes, WebhookWorld)
  const outbox = Context.get(fakes, DeliveryQueue)
  const wakeups = Context.get(fakes, Wakeups)
  const claims: Array<Claim> = []
  const batches: Array<ReadonlyArray<AttemptRecord>> = []
  const released: Array<string> = []
  const sends: Array<Sent & { readonly at: number }> = []
  const log: Array<string> = []
  const inFlight = new Map<string, number>()
  let looks = 0
  /** Opens when the test is over, so that nothing hangs any more. */
  const over = yield* Latch.make()

  const world = {
    claims,
    batches,
    sends,
    /** The deliveries that were released without an attempt. */
    released,
    log: () => log.join("\n"),
    /** The number of queries to the database, for deliveries or for the next due time. */
    asked: () => claims.length + looks,
    /** The number of requests that receivers are handling now. */
    inFlight: (lane?: string) =>
      lane === undefined ? [...inFlight.values()].reduce((sum, count) => sum + count, 0) : (inFlight.get(lane) ?? 0),
    sentTo: (lane: string) => sends.filter((sent) => sent.lane === lane),
    delivery: (id: string) => deliveries.get(id)!,
    /** The states of all deliveries, in the order in which they were added. */
    states: () => [...deliveries.values()].map(({ row }) => row.state),
    wake: wakeups.deliveries,
    /** Effects that run before a claim, a record, a release or a query of the next due time. */
    onClaim: Effect.void as Effect.Effect<void, Unavailable>,
    /** Runs between a claim and its answer. */
    onClaimed: Effect.void as Effect.Effect<void>,
    onRecord: (() => Effect.void) as (records: ReadonlyArray<AttemptRecord>) => Effect.Effect<void, Unavailable>,
    onRelease: Effect.void as Effect.Effect<void, Unavailable>,
    onLook: Effect.void as Effect.Effect<void, Unavailable>,
    /** Whether other claims hold locks on all due deliveries. */
    isLocked: false,
    /** The answer of a receiver. */
    receive: (() => Effect.succeed(answer(200))) as (sent: Sent) => Effect.Effect<AttemptOutcome>,
    /** Adds deliveries to the endpoint of that name, due after a time, without waking a worker. */
    add: (lane: string, count = 1, after: Duration.Input = 0, orgId = "org") =>
      Effect.map(DateTime.now, (now) => {
        if (!endpoints.has(lane)) {
          const row = { webhook_endpoint_id: lane, url: lane, description: null, active: true }
          const times = { created_at: now, updated_at: now }
          endpoints.set(lane, {
            orgId,
            row: { ...row, ...times },
            settings: defaultSettings,
            secret: "s",
            previous: null,
            failingSince: null,
            failures: 0,
            deactivated: null,
          })
        }
        for (let n = 0; n < count; n++) {
          const id = `${lane}${deliveries.size}`
          deliveries.set(id, {
            orgId,
            row: {
              delivery_id: id,
              event_id: id,
              job_id: id,
              webhook_endpoint_id: lane,
              event: "job.completed",
              state: "pending",
              attempts: 0,
              created_at: now,
              updated_at: now,
            },
            payload: "{}",
            lane,
            attemptsSinceResend: 0,
            place: deliveries.size,
            dueAt: DateTime.addDuration(now, after),
            backlogged: false,
            claimId: null,
            attempts: [],
          })
        }
      }),
  }

  const queue = DeliveryQueue.of({
    ...outbox,
    claim: (claim) =>
      Effect.suspend(() => {
        claims.push(claim)
        return Effect.andThen(
          world.onClaim,
          world.isLocked
            ? Effect.succeed({ deliveries: [], more: false, short: false, throttledUntil: null })
            : outbox.claim(claim),
        ).pipe(Effect.tap(Effect.suspend(() => world.onClaimed)))
      }),
    record: (records, now) =>
      Effect.suspend(() => {
        const recorded = Effect.andThen(world.onRecord(records), outbox.record(records, now))
        return Effect.tap(recorded, () => Effect.sync(() => batches.push(records)))
      }),
    release: (deliveries, now) =>
      Effect.suspend(() => {
        released.push(...deliveries.map(({ deliveryId }) => deliveryId))
        return Effect.andThen(world.onRelease, outbox.release(deliveries, now))
      }),
    nextDueAt: Effect.suspend(() => {
      looks++
      return Effect.andThen(world.onLook, outbox.nextDueAt)
    }),
  })
  const send = Effect.fnUntraced(function* ({ headers, url: lane }: WebhookRequest) {
    const id = headers["webhook-id"]!
    sends.push({ id, lane, at: yield* Clock.currentTimeMillis })
    inFlight.set(lane, world.inFlight(lane) + 1)
    return yield* Effect.ensuring(
      Effect.raceFirst(world.receive({ id, lane }), Effect.as(over.await, answer(200))),
      Effect.sync(() => inFlight.set(lane, world.inFlight(lane) - 1)),
    )
  })

  const services = Layer.mergeAll(
    Layer.succeed(DeliveryQueue, queue),
    Layer.succeed(Wakeups, wakeups),
    Dispatcher.layer.pipe(
      Layer.provide([
        Layer.succeed(WebhookSender, { send, hostFault: () => Effect.succeed(null), checkIdentity: Effect.die }),
        Layer.succeed(Cipher, {
          keyIds: ["fake"],
          encrypt: Effect.die,
          decrypt: (stored) => Effect.succeed(Redacted.make(stored)),
        }),
        Layer.succeed(Signer, {
          prepare: () => Effect.succeed(({ deliveryId }: Signable) => ({ "webhook-id": deliveryId })),
        }),
      ]),
    ),
    crypto.layer,
    Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))]),
  )

  /** Starts a worker; returns how to stop it. */
  const start = Effect.fnUntraced(function* (
    options: Partial<DeliveryWorker.DeliveryWorkerOptions> = {},
    delays: ReadonlyArray<Duration.Duration> = [Duration.seconds(30), Duration.minutes(5), Duration.minutes(30)],
  ) {
    const scope = yield* Effect.acquireRelease(Scope.make(), (scope) =>
      Effect.gen(function* () {
        yield* over.open
        const end = yield* Effect.forkChild(Scope.close(scope, Exit.void))
        yield* TestClock.adjust("1 minute")
        yield* Fiber.join(end)
      }),
    )
    const worker = DeliveryWorker.layer.pipe(
      Layer.provide(services),
      Layer.provide(
        Layer.succeed(DeliveryWorker.DeliveryWorkerOptions, { ...DeliveryWorker.defaultOptions, ...options }),
      ),
      Layer.provide(Layer.succeed(RetryDelays, delays)),
    )
    yield* Layer.buildWithMemoMap(worker, yield* Layer.makeMemoMap, scope)
    return { stop: Scope.close(scope, Exit.void) }
  })
  return Object.assign(world, { start })
})
