import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { randomBytes } from "node:crypto"
import { layer } from "../../support/it.ts"
import { makeReceiver } from "../../support/receiver.ts"
import { embedded, onPostgres, TestServer } from "../../support/server.ts"
import { disguises, dump } from "../server/secrets.ts"
import { makeTenant } from "../tenants.ts"
import { webhookBody, webhookEntries } from "./webhookOperations.ts"

const servers = {
  "the embedded database": TestServer.layer(embedded),
  PostgreSQL: TestServer.layer(onPostgres()),
}

for (const [database, server] of Object.entries(servers)) {
  layer(server, { excludeTestServices: true })(database, (it) => {
    it.effect("no secret of a webhook is in a table, a log line, a span or an answer", function* () {
      const { sql, logs, spans } = yield* TestServer
      const tenant = yield* makeTenant()
      const [receiver, failing] = [yield* makeReceiver(), yield* makeReceiver()]
      failing.behave("reset")
      const made: Array<string> = []
      const secret = (prefix = "whsec_") => {
        made.push(`${prefix}${randomBytes(24).toString("base64")}`)
        return made.at(-1)!
      }
      const answers: Array<string> = []
      const ask = (path: string, json: object) =>
        Effect.map(tenant.ask(path, json), ({ text, headers }) => void answers.push(text + JSON.stringify(headers)))

      // Kept, replaced, used and refused, in every field that takes one.
      const good = yield* tenant.endpoint(receiver.url, { signing_secret: secret() })
      const bad = yield* tenant.endpoint(failing.url, { signing_secret: secret("plain-") })
      yield* ask("webhooks/update", { id: good, signing_secret: secret() })
      const callback = { callback_url: failing.url, callback_secret: secret() }
      const job_id = yield* tenant.finished(callback)
      yield* ask("schedules/create", { workflow: "w", cron: "0 4 * * *", ...callback, callback_secret: secret() })
      for (const signing_secret of [[secret()], { [secret()]: 1 }, `${secret()}${"a".repeat(512)}`]) {
        yield* ask("webhooks/create", { url: receiver.url, signing_secret })
        yield* ask("webhooks/update", { id: good, signing_secret })
        yield* ask("jobs/create", { workflow: "w", callback_secret: signing_secret })
        yield* ask("jobs/create", { [secret()]: signing_secret })
      }
      yield* ask("webhooks/create", { url: "nowhere", signing_secret: secret() })
      yield* ask("webhooks/delete", { id: secret() })
      yield* tenant.attempted(job_id)
      yield* tenant.finished()
      yield* receiver.arrived(1)
      const things = { endpoint: bad, queued: job_id, running: job_id, delivery: job_id, schedule: job_id }
      for (const [name, { path }] of webhookEntries) yield* ask(path.slice(4), webhookBody(name, things) ?? {})

      const { text } = yield* dump(sql)
      const stored = yield* sql<{ secret: string }>`
          SELECT unnest(ARRAY[secret, previous_secret]) AS secret FROM webhook_endpoints UNION ALL
          SELECT callback_secret FROM jobs UNION ALL SELECT callback_secret FROM events UNION ALL SELECT callback_secret FROM job_schedules`
      const kept = stored.map((row) => row.secret).filter((one) => one !== null)
      expect(kept).toHaveLength(5)
      for (const one of kept) expect(one).toMatch(/^v1\.[0-9a-f]{8}\.[A-Za-z0-9_-]{40,}$/)
      // The search is known to look in the right places.
      expect(text).toContain(failing.url)
      expect(logs()).toContain("Gatehouse listens on")
      expect(spans()).toContain("WebhookEndpoints.create")
      expect(answers.join("\n")).toContain(receiver.url)
      const places = { tables: text, logs: logs(), spans: spans(), answers: answers.join("\n") }
      expect(made.length).toBeGreaterThan(10)
      for (const [place, content] of Object.entries(places)) {
        for (const one of made.flatMap(disguises)) expect(content.includes(one), `${one}: ${place}`).toBe(false)
      }
    })
  })
}
