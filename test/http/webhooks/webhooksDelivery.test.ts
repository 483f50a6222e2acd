import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { Webhook } from "standardwebhooks"
import { userAgent } from "#src/domain/webhooks/Signatures.ts"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { layer } from "../../support/it.ts"
import { makeReceiver, type Received } from "../../support/receiver.ts"
import { embedded, onPostgres, TestServer } from "../../support/server.ts"
import { within } from "../../support/wait.ts"
import { must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"
import { hmac } from "../../support/hmac.ts"

/** Secrets of every form, each with its form for the Standard Webhooks library. */
const secrets = {
  "whsec_ and base64": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
  "whsec_ and something else": "whsec_not base64!",
  "a word": "s",
  "512 characters": "0123456789abcdef".repeat(32),
  "beyond ASCII": "ключ \u{1f4da}",
}

/** Verifies a delivery in every documented way; returns its event. */
const verified = Effect.fnUntraced(function* ({ headers, body }: Received, secret: string) {
  const { event, deliveryId } = yield* Effect.promise(() => verifyWebhook({ headers, body }, secret))
  expect(deliveryId).toBe(headers["webhook-id"])
  expect(headers["x-webhook-signature"]).toBe(hmac(secret, body))
  const standard =
    secret === secrets["whsec_ and base64"] ? new Webhook(secret) : new Webhook(Buffer.from(secret), { format: "raw" })
  expect(standard.verify(body, headers as Record<string, string>)).toEqual(event)
  return event
})

// With sleeps that never end, everything that arrives was sent at once, without a poll interval.
const servers = {
  "the embedded database": TestServer.layer(embedded, { endlessSleeps: true }),
  PostgreSQL: TestServer.layer(onPostgres(), { endlessSleeps: true }),
}

for (const [database, server] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(`deliveries on ${database}`, (it) => {
    it.effect("a completed job is sent to every active endpoint, signed, at once, in the same bytes", function* () {
      const tenant = yield* makeTenant()
      const [a, b, inactive] = [yield* makeReceiver(), yield* makeReceiver(), yield* makeReceiver()]
      const ofA = yield* tenant.endpoint(`${a.url}/hooks?a=1`, { signing_secret: secrets["whsec_ and base64"] })
      const ofB = yield* tenant.endpoint(b.url, { signing_secret: secrets["beyond ASCII"] })
      const skipped = yield* tenant.endpoint(inactive.url, { active: false })
      const result = { text: "✓ \u{1f4da} \u2028 \0 \ud800", "": [], n: 1e21 }
      const job_id = yield* tenant.finished({ workflow: "nightly", deployment_id: "d1" }, result)
      yield* Effect.all([a.arrived(1), b.arrived(1)])
      const [atA, atB] = [a.received[0]!, b.received[0]!]

      // Our headers, and those that HTTP itself needs.
      const http = ["host", "connection", "content-length"]
      const ours = ["content-type", "user-agent", "x-webhook-signature", "x-event-type"]
      const standard = ["webhook-id", "webhook-timestamp", "webhook-signature"]
      expect(atA.headerNames.toSorted()).toEqual([...http, ...ours, ...standard].toSorted())
      expect([atA.method, atA.path, atB.path]).toEqual(["POST", "/hooks?a=1", "/"])
      const sent = { "content-type": "application/json", "user-agent": userAgent, "x-event-type": "job.completed" }
      expect(atA.headers).toMatchObject({ ...sent, "content-length": String(atA.body.length) })
      expect(atA.headers["webhook-timestamp"]).toMatch(/^\d{10}$/)
      expect(atA.headers["webhook-signature"]).toMatch(/^v1,[A-Za-z0-9+/]{43}=$/)

      const event = yield* verified(atA, secrets["whsec_ and base64"])
      expect(yield* verified(atB, secrets["beyond ASCII"])).toEqual(event)
      expect(atB.body.equals(atA.body)).toBe(true)
      expect(yield* Effect.exit(verified(atA, secrets["a word"]))).toMatchObject({ _tag: "Failure" })
      expect(Object.keys(event).join()).toBe(
        "event,job_id,nonce,workflow,deployment_id,status,result,error,mapped_stack",
      )
      expect(event).toEqual({
        event: "job.completed",
        job_id,
        nonce: expect.stringMatching(/^[0-9a-f]{32}$/) as string,
        workflow: "nightly",
        deployment_id: "d1",
        status: "completed",
        result,
        error: null,
        mapped_stack: null,
      })

      const deliveries = yield* tenant.deliveries({ job_id })
      const of = (endpoint: string) => deliveries.find(({ webhook_endpoint_id }) => webhook_endpoint_id === endpoint)!
      expect(deliveries).toHaveLength(3)
      expect(new Set(deliveries.map(({ event_id }) => event_id)).size).toBe(1)
      expect(of(skipped)).toMatchObject({ state: "skipped", attempts: 0, next_attempt_at: null })
      expect(inactive.connections().accepted).toBe(0)
      for (const [endpoint, { headers, body }] of [
        [ofA, atA],
        [ofB, atB],
      ] as const) {
        const delivery = yield* tenant.until(of(endpoint).delivery_id, ({ state }) => state === "delivered")
        expect(headers["webhook-id"]).toBe(delivery.delivery_id)
        expect(delivery).toMatchObject({ payload: body.toString(), attempts: 1, next_attempt_at: null })
      }
      expect(atA.headers["webhook-id"]).not.toBe(atB.headers["webhook-id"])
    })

    it.effect("a failed job is sent with its error and its stack, with every form of secret", function* () {
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      for (const [name, signing_secret] of Object.entries(secrets)) {
        yield* tenant.endpoint(`${receiver.url}/${encodeURIComponent(name)}`, { signing_secret })
      }
      const { job_id } = yield* tenant.call("jobs/create", { workflow: "w" })
      yield* tenant.call("jobs/fail", { job_id, error: "out of rows", mapped_stack: [{ line: 3 }] })
      yield* receiver.arrived(5)
      for (const [name, secret] of Object.entries(secrets)) {
        const request = receiver.received.find(({ path }) => path === `/${encodeURIComponent(name)}`)!
        expect(request.headers["x-event-type"]).toBe("job.failed")
        expect(yield* verified(request, secret), name).toMatchObject({
          event: "job.failed",
          job_id,
          deployment_id: null,
          status: "failed",
          result: null,
          error: "out of rows",
          mapped_stack: [{ line: 3 }],
        })
      }
    })

    // Seen failing without the notification of the worker: it sleeps.
    it.effect("the end of a job wakes the worker, without a poll interval", function* () {
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      yield* tenant.endpoint(receiver.url)
      for (let n = 1; n <= 5; n++) {
        yield* tenant.finished()
        yield* within("the delivery", receiver.arrived(n))
      }
    })

    it.effect("the rules decide in their order who receives an event", function* () {
      const tenant = yield* makeTenant()
      const [stored, callback] = [yield* makeReceiver(), yield* makeReceiver()]
      yield* tenant.endpoint(stored.url, { signing_secret: "stored" })
      const url = { callback_url: `${callback.url}/back` }
      const both = { ...url, callback_secret: "of the job" }
      const cases: ReadonlyArray<readonly [Record<string, unknown>, "stored" | "callback" | "nobody"]> = [
        [{}, "stored"],
        [both, "callback"],
        [{ ...both, skip_callbacks: false }, "callback"],
        [{ ...both, skip_callbacks: true }, "nobody"],
        [{ skip_callbacks: true }, "nobody"],
        [url, "stored"],
        [{ callback_secret: "alone" }, "stored"],
        [{ callback_url: null, callback_secret: null }, "stored"],
      ]
      const wanted = { stored: new Set<string>(), callback: new Set<string>() }
      for (const [fields, who] of cases) {
        const job_id = yield* tenant.finished(fields)
        if (who !== "nobody") wanted[who].add(job_id)
        const deliveries = yield* tenant.deliveries({ job_id })
        expect(deliveries, JSON.stringify(fields)).toHaveLength(who === "nobody" ? 0 : 1)
        if (who === "callback") expect(deliveries[0]!.webhook_endpoint_id).toBeNull()
      }
      yield* Effect.all([stored.arrived(wanted.stored.size), callback.arrived(wanted.callback.size)])
      const jobsAt = (received: ReadonlyArray<Received>, secret: string) =>
        Effect.map(
          Effect.forEach(received, (request) => verified(request, secret)),
          (events) => events.map((event) => event["job_id"]).toSorted(),
        )
      expect(yield* jobsAt(stored.received, "stored")).toEqual([...wanted.stored].toSorted())
      expect(yield* jobsAt(callback.received, "of the job")).toEqual([...wanted.callback].toSorted())
      expect(callback.received.map(({ path }) => path)).toEqual(["/back", "/back"])
    })

    // Seen failing: the wake-up came before the commit, and nothing else woke the worker.
    it.effect("an event with an idempotency key whose commit takes long is sent at once", function* () {
      const { send, sql } = yield* TestServer
      const tenant = yield* makeTenant()
      const receiver = yield* makeReceiver()
      yield* tenant.endpoint(receiver.url, { event_types: ["invoice.*"] })
      yield* sql`
          CREATE FUNCTION wait_before_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END'`
      yield* sql`
          CREATE CONSTRAINT TRIGGER late AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION wait_before_commit()`
      yield* must(send, "POST", "/v1/events/publish", {
        json: { type: "invoice.paid", data: {} },
        headers: { ...tenant.headers, "idempotency-key": "once" },
      }).pipe(
        // Not DROP TRIGGER: it locks a partition before its table, so it can deadlock with the service's statements.
        Effect.ensuring(
          Effect.orDie(sql`
              CREATE OR REPLACE FUNCTION wait_before_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`),
        ),
      )
      yield* receiver.arrived(1)
    })
  })
}
