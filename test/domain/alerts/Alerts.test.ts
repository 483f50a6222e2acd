import { assert, describe } from "@effect/vitest"
import { DateTime, Effect, Fiber, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import type { CreateAlert, StoredAlert } from "#src/domain/alerts/Alert.ts"
import { Alerts } from "#src/domain/alerts/Alerts.ts"
import { AlertWatch } from "#src/domain/alerts/AlertWatch.ts"
import { ConsoleUrl, MailSender } from "#src/domain/alerts/tellAlert.ts"
import { ActivityRepository } from "#src/domain/activity/ActivityRepository.ts"
import { AuditLog } from "#src/domain/audit/AuditLog.ts"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { ReceiverUrlRules } from "#src/domain/callableUrls.ts"
import { Signer } from "#src/domain/webhooks/Signatures.ts"
import { signatures } from "#src/infrastructure/crypto/nodeCrypto.ts"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { newEntry, newKey } from "../../contract/support.ts"
import { AlertWorld } from "../../fakes/Alerts.ts"
import * as Cipher from "../../fakes/Cipher.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as fakes from "../../fakes/repositories.ts"
import { answer, failure, Receiver } from "../../fakes/WebhookSender.ts"
import * as WebhookSender from "../../fakes/WebhookSender.ts"
import { World } from "../../fakes/World.ts"
import { it } from "../../support/it.ts"
import { asAdministrator, failureOf, unknownId } from "../support.ts"
import { as, makeOrg } from "../webhooks/webhookSupport.ts"

/** The due deliveries, and the e-mails that were sent. */
const queue = { backlog: 0, oldestDueAt: null as DateTime.Utc | null }
const mails: Array<Parameters<MailSender["Service"]["send"]>[0]> = []

const activity = Layer.effect(
  ActivityRepository,
  Effect.map(ActivityRepository, (all) => ({
    ...all,
    queueState: () => Effect.sync(() => ({ ...queue, sweeps: 0, replicas: 1 })),
  })),
)
const services = Layer.merge(Alerts.layer, AlertWatch.layer).pipe(
  Layer.provideMerge(AuditLog.layer),
  Layer.provideMerge(activity),
  Layer.provideMerge(fakes.layer),
  Layer.provideMerge(WebhookSender.layer),
  Layer.provide([Cipher.layer, Layer.provideMerge(Signer.layer, signatures)]),
  Layer.provide(Layer.succeed(MailSender, { send: (mail) => Effect.sync(() => (mails.push(mail), null)) })),
  Layer.provide(Layer.succeed(ReceiverUrlRules, { httpsOnly: true, allowPrivateNetworks: false })),
  Layer.provide(Layer.succeed(ConsoleUrl, "https://gatehouse.example/console")),
  Layer.provideMerge(crypto.layer),
)

const token = "T00-secret-of-slack"
const slack = { target: "slack", url: `https://hooks.slack.com/services/${token}` } as const
const failing = { name: "Webhooks fail", condition: "endpoint_failing", threshold: 30, ...slack } as const
const create = (input: Partial<typeof CreateAlert.Type> = {}, orgId: string | null = "o") =>
  Alerts.use((alerts) => alerts.create(orgId, { ...failing, ...input })).pipe(asAdministrator)
const list = (orgId: string | null = "o") =>
  Effect.map(Alerts.use((alerts) => alerts.list(orgId, { limit: 100 })).pipe(asAdministrator), ({ alerts }) => alerts)
const sweep = AlertWatch.use(({ run }) => run)
/** The next look at every alert whose target answers. */
const lookAfter = (minutes: number) => Effect.andThen(TestClock.adjust(`${minutes} minutes`), sweep)
const nowLess = (minutes: number) => Effect.map(DateTime.now, (now) => DateTime.subtract(now, { minutes }))

const endpoint = (endpointId: string, since: DateTime.Utc, orgId = "o") => ({
  endpointId,
  orgId,
  since,
  url: `https://${endpointId}.example.com/path/${token}`,
})
/** The texts that were sent to Slack. */
const texts = Effect.map(Receiver, ({ requests }) => requests.map(({ body }) => JSON.parse(body).text as string))
const answers = (...all: ReadonlyArray<ReturnType<typeof answer>>) =>
  Effect.map(Receiver, (receiver) => void (receiver.answers = all.map((one) => Effect.succeed(one))))

const run = <A, E, R>(name: string, test: Effect.Effect<A, E, R>) =>
  it.effect(name, () =>
    Effect.andThen(
      Effect.gen(function* () {
        Object.assign(queue, { backlog: 0, oldestDueAt: null })
        mails.length = 0
        yield* TestClock.adjust("10 days")
        yield* makeOrg("o")
        yield* makeOrg("p")
      }),
      test as Effect.Effect<A, E, never>,
    ).pipe(Effect.provide(services)),
  )

describe("Alerts", () => {
  run(
    /**
     * Promise (Alerts): An alert tells once in its quiet time, and that all is well only to whom it told that it was
     * not.
     */
    "tell that an endpoint fails once, again after the quiet time, and that all is well",
    Effect.gen(function* () {
      const world = yield* AlertWorld
      yield* create({ quietMinutes: 60 })
      assert.strictEqual(yield* sweep, 1)
      assert.deepStrictEqual(yield* texts, [])
      const since = yield* nowLess(29)
      world.failing.push(endpoint("a", since))
      yield* lookAfter(0.9)
      assert.deepStrictEqual(yield* texts, [])
      yield* lookAfter(1.1)
      const [text] = yield* texts
      assert.deepStrictEqual(text!.split("\n"), [
        "Webhooks fail: endpoints that have failed for 30 minutes: 1.",
        `- a.example.com (a), since ${DateTime.formatIso(since)}`,
        `This alert began at ${DateTime.formatIso(yield* DateTime.now)}.`,
        "<https://gatehouse.example/console/orgs/o|Open the console>",
      ])
      const [told] = yield* list()
      const firingSince = yield* DateTime.now
      assert.deepStrictEqual([told!.firingSince, told!.lastToldAt], [firingSince, firingSince])
      for (let minute = 1; minute < 60; minute++) yield* lookAfter(1)
      assert.lengthOf(yield* texts, 1)
      yield* lookAfter(1)
      assert.lengthOf(yield* texts, 2)
      world.failing.pop()
      yield* lookAfter(1)
      assert.deepStrictEqual((yield* texts)[2]!.split("\n"), [
        "Webhooks fail: all is well again.",
        `It began at ${DateTime.formatIso(firingSince)}.`,
        "<https://gatehouse.example/console/orgs/o|Open the console>",
      ])
      // Within the quiet time nothing is told, also not that it is well what nobody was told of.
      world.failing.push(endpoint("a", since))
      yield* lookAfter(1)
      world.failing.pop()
      yield* lookAfter(1)
      assert.lengthOf(yield* texts, 3)
      assert.isNull((yield* list())[0]!.firingSince)
    }),
  )

  run(
    /** Promise (Tenants apart) */
    "watch only their own org, and those of the administrator every org",
    Effect.gen(function* () {
      const world = yield* AlertWorld
      yield* create({ name: "of p" }, "p")
      yield* create({ name: "of all" }, null)
      const since = yield* nowLess(45)
      for (let n = 0; n < 7; n++) world.failing.push(endpoint(`e${n}`, DateTime.add(since, { seconds: n })))
      yield* sweep
      const [text, ...others] = yield* texts
      assert.deepStrictEqual(others, [])
      const lines = text!.split("\n")
      assert.strictEqual(lines[0], "of all: endpoints that have failed for 30 minutes: more than 5.")
      assert.strictEqual(lines[1], `- e0.example.com (e0), org o, since ${DateTime.formatIso(since)}`)
      assert.lengthOf(lines, 8)
    }),
  )

  run(
    "tell of deactivated endpoints again only when there is another",
    Effect.gen(function* () {
      const world = yield* AlertWorld
      const { threshold: _, ...input } = { ...failing, condition: "endpoint_deactivated", quietMinutes: 0 } as const
      yield* Alerts.use((alerts) => alerts.create("o", input)).pipe(asAdministrator)
      world.deactivated.push(endpoint("a", yield* nowLess(5)))
      yield* sweep
      yield* lookAfter(1)
      yield* lookAfter(1)
      assert.lengthOf(yield* texts, 1)
      world.deactivated.push(endpoint("b", yield* DateTime.now))
      yield* lookAfter(1)
      assert.include((yield* texts)[1], "endpoints that the service has deactivated: 2")
      // Seen failing: it was never told, because the clock of its replica is behind.
      world.deactivated.push(endpoint("c", yield* nowLess(0.5)))
      yield* lookAfter(1)
      assert.include((yield* texts)[2], "endpoints that the service has deactivated: 3")
    }),
  )

  run(
    /**
     * Promise (Alerts): An alert is told above its threshold and not at it: a backlog, failed jobs; from it on: a
     * limit; below it: credits.
     */
    "tell of a backlog and of failed jobs above their thresholds",
    Effect.gen(function* () {
      const { add } = yield* ActivityRepository
      yield* create({ name: "backlog", condition: "backlog", threshold: 1_000 })
      yield* create({ name: "jobs", condition: "jobs_failed", threshold: 2 })
      queue.backlog = 1_000
      const now = yield* DateTime.now
      const jobs = (outcome: "failed" | "completed", count: number, minutesAgo: number, orgId = "o") =>
        add([
          {
            orgId,
            every: "minute",
            kind: "jobs",
            outcome,
            count,
            at: Math.floor(now.epochMilliseconds / 60_000 - minutesAgo) * 60_000,
          },
        ])
      yield* jobs("failed", 2, 1)
      yield* jobs("failed", 9, 61)
      yield* jobs("completed", 9, 1)
      yield* jobs("failed", 9, 1, "p")
      yield* sweep
      assert.deepStrictEqual(yield* texts, [])
      Object.assign(queue, { backlog: 1_001, oldestDueAt: yield* nowLess(3) })
      yield* jobs("failed", 1, 2)
      yield* lookAfter(1)
      const told = (yield* texts).toSorted()
      assert.lengthOf(told, 2)
      assert.include(told[0], "backlog: deliveries that are due: 1001 (threshold 1000).")
      assert.include(told[1], "jobs: jobs that failed within an hour: 3 (threshold 2).")
    }),
  )

  run(
    /** Promise (Alerts) */
    "tell of limits that are near, and of keys with few credits",
    Effect.gen(function* () {
      const { overrides } = yield* World
      const add = Effect.fnUntraced(function* (name: string, remaining: number | null, more: object = {}, orgId = "o") {
        const credits = remaining === null ? null : { remaining }
        const key = yield* newKey({ name, credits, ...more })
        yield* ApiKeyRepository.use((keys) => keys.insertForOrg(orgId, key, newEntry()))
        return key.id
      })
      overrides.set("o", { keys: 4, endpoints: 0 })
      yield* create({ condition: "limit_near", threshold: 90 })
      yield* create({ condition: "credits_low", threshold: 100 })
      yield* add("k1", 100)
      yield* add("k2", null)
      yield* add("k3", 0, { enabled: false })
      yield* add("k4", 0, {}, "p")
      yield* sweep
      assert.deepStrictEqual(yield* texts, [])
      const low = yield* add("k5", 99)
      yield* lookAfter(1)
      const [credits, limits] = (yield* texts).toSorted()
      assert.include(credits, `keys that have less than 100 credits: 1.\n- k5 (${low}): 99 credits left`)
      assert.include(limits, "limits of which 90 % are used: 1.\n- keys: 4 of 4")
      assert.include(
        yield* failureOf(create({ condition: "limit_near", threshold: 1 }, null)),
        "condition limit_near is only of an org",
      )
    }),
  )

  run(
    /**
     * Promise (Alerts): A target that was not reached for a day turns its alert off, and the org's other alerts and
     * the audit log say so.
     */
    "whose target fails for a day are off, which the other alerts of the org and the audit log say",
    Effect.gen(function* () {
      const world = yield* AlertWorld
      const { audit } = yield* World
      const { alertId } = yield* create({ name: "dead" })
      world.failing.push(endpoint("a", yield* nowLess(60)))
      yield* answers(failure("timeout", "No complete response within 15s."))
      const looks = (hours: number) =>
        Effect.gen(function* () {
          for (let minutes = 0; minutes < hours * 60; minutes += 4) yield* lookAfter(4)
        })
      yield* sweep
      yield* looks(23)
      const [still] = yield* list()
      assert.isTrue(still!.active)
      assert.strictEqual(still!.lastError, "No complete response within 15s.")
      const { requests } = yield* Receiver
      // Looks at an alert whose target fails are up to 16 minutes apart.
      assert.isBelow(requests.length, 100)
      assert.isAbove(requests.length, 5)

      yield* create({ name: "other", condition: "jobs_failed", threshold: 1 })
      yield* create({ name: "of p" }, "p")
      yield* answers(failure("timeout", "No complete response within 15s."), answer(200))
      const { answers: queued } = yield* Receiver
      queued.splice(0, 2, ...Array.from({ length: 8 }, () => queued[0]!), queued[1]!)
      requests.length = 0
      yield* looks(2)
      const off = (yield* list()).find((alert) => alert.alertId === alertId)!
      assert.isFalse(off.active)
      assert.strictEqual(off.lastError, "No complete response within 15s.")
      const last = (yield* texts).at(-1)!
      assert.include(last, "dead: the alert is off.")
      assert.include(last, "Its target failed for a day: No complete response within 15s.")
      const entry = [...audit.values()].find(({ row }) => row.action === "alert.off")!
      assert.strictEqual(entry.orgId, "o")
      assert.deepInclude(entry.row, { actor: "service", target: alertId })

      // On again, it is told as if its target had never failed.
      yield* answers(answer(200))
      const on = Alerts.use((alerts) => alerts.update("o", alertId, { active: true })).pipe(asAdministrator)
      assert.deepInclude(yield* on, { active: true, failingSince: null, lastError: null })
      requests.length = 0
      yield* sweep
      assert.include((yield* texts)[0], "endpoints that have failed")
    }),
  )

  run(
    "whose target failed for a while are told once it is reached, also that all is well",
    Effect.gen(function* () {
      const world = yield* AlertWorld
      yield* create()
      world.failing.push(endpoint("a", yield* nowLess(60)))
      yield* answers(answer(500), answer(200))
      yield* sweep
      assert.deepInclude((yield* list())[0], { lastError: "The target answered with status 500.", lastToldAt: null })
      yield* lookAfter(2)
      assert.deepInclude((yield* list())[0], { lastError: null, failingSince: null })
      world.failing.pop()
      yield* answers(answer(302), answer(200))
      yield* lookAfter(1)
      yield* lookAfter(2)
      assert.deepStrictEqual(
        (yield* texts).map((text) => text.split("\n", 1)[0]),
        [
          ...Array.from({ length: 2 }, () => "Webhooks fail: endpoints that have failed for 30 minutes: 1."),
          ...Array.from({ length: 2 }, () => "Webhooks fail: all is well again."),
        ],
      )
    }),
  )

  run(
    /** Promise (Alerts) */
    "are told once more when a process ends between telling and writing, and never twice more",
    Effect.gen(function* () {
      const world = yield* AlertWorld
      yield* create()
      world.failing.push(endpoint("a", yield* nowLess(60)))
      world.crashes = true
      yield* sweep
      yield* lookAfter(1)
      assert.lengthOf(yield* texts, 1)
      yield* lookAfter(1)
      assert.lengthOf(yield* texts, 2)
      yield* lookAfter(2)
      assert.lengthOf(yield* texts, 2)
    }),
  )

  run(
    "of an org whose targets are slow delay those of no other",
    Effect.gen(function* () {
      const world = yield* AlertWorld
      const receiver = yield* Receiver
      yield* makeOrg("q")
      for (const org of ["p", "q"]) {
        world.failing.push(endpoint(`of-${org}`, yield* nowLess(60), org))
        for (let n = 0; n < 20; n++) yield* create({ name: `slow ${n}` }, org)
      }
      const slow = Effect.delay(Effect.succeed(answer(200)), "14 seconds")
      receiver.answers = Array.from({ length: 40 }, () => slow)
      const pass = yield* Effect.forkChild(sweep)
      yield* TestClock.adjust("1 second")
      world.failing.push(endpoint("of-o", yield* nowLess(60)))
      yield* create({ name: "quick" })
      // The next claim: neither org has used up what there is.
      yield* TestClock.adjust("20 seconds")
      const told = receiver.requests.findIndex(({ body }) => body.includes("quick"))
      assert.isAtLeast(told, 0)
      assert.isBelow(told, 30)
      yield* TestClock.adjust("2 minutes")
      assert.strictEqual(yield* Fiber.join(pass), 41)
    }),
  )

  run(
    /**
     * Promise (Alerts): Each target gets its own format, in which the words of tenants are neither markup nor a
     * mention.
     */
    "send each target its own format, without markup or mentions of a tenant",
    Effect.gen(function* () {
      const world = yield* AlertWorld
      const own = { ...failing, name: "<!channel> *A* [x](http://evil.example)\n& co" }
      const other = { ...own, url: `https://example.com/${token}` }
      yield* create(own)
      yield* create({ ...other, target: "discord" })
      yield* create({ ...other, target: "teams" })
      const { signingSecret } = yield* create({ ...other, target: "webhook" })
      yield* create({
        ...own,
        target: "email",
        url: "smtps://me:p%40ss@mail.example.com?from=a@example.com&to=b+c@example.com,d@example.com",
      })
      const since = yield* nowLess(60)
      world.failing.push(endpoint("a", since))
      yield* sweep
      const { requests } = yield* Receiver
      const bodyOf = (includes: string) => requests.find(({ body }) => body.includes(includes))!
      const name = "<!channel> *A* [x](http://evil.example) & co"
      const text = JSON.parse(bodyOf("unfurl_links").body).text as string
      const parted = "&lt;!channel&gt; *|A*| [|x]|(http:|//evil.example) &amp; co: endpoints".replaceAll("|", "\u2060")
      assert.include(text, parted)
      assert.deepInclude(JSON.parse(bodyOf("unfurl_links").body), { mrkdwn: false, parse: "none", link_names: false })
      const discord = JSON.parse(bodyOf("allowed_mentions").body)
      assert.deepStrictEqual(discord.allowed_mentions, { parse: [] })
      assert.include(discord.content, "\\<!channel\\> \\*A\\* \\[x\\]\\(http\\://evil.example\\)")
      assert.match(discord.content, /<https:\/\/gatehouse\.example\/console\/orgs\/o>$/)
      const [card] = JSON.parse(bodyOf("adaptive").body).attachments
      assert.strictEqual(card.content.body[0].inlines[0].text, `${name}: endpoints that have failed for 30 minutes: 1.`)
      assert.strictEqual(card.content.actions[0].url, "https://gatehouse.example/console/orgs/o")
      const webhook = bodyOf("alert.firing")
      const request = { headers: webhook.headers, body: webhook.body }
      const event = yield* Effect.promise(() => verifyWebhook(request, signingSecret!, { toleranceSeconds: 1e12 }))
      assert.isObject(event)
      const { data, event: type } = JSON.parse(webhook.body)
      assert.strictEqual(type, "alert.firing")
      assert.deepInclude(data, {
        org_id: "o",
        condition: "endpoint_failing",
        since: DateTime.formatIso(yield* DateTime.now),
      })
      const [mail] = mails
      assert.include(Redacted.value(mail!.url), "smtps://me:p%40ss@mail.example.com?from=")
      assert.deepInclude(mail, { from: "a@example.com", to: ["b+c@example.com", "d@example.com"] })
      assert.strictEqual(mail!.subject, `${name}: endpoints that have failed for 30 minutes: 1`)
      assert.notInclude(JSON.stringify([requests.map(({ body }) => body), mail!.text]), token)
    }),
  )

  run(
    /** Promise (Nothing secret in logs) */
    "show and log no target: not in answers, entries of the audit log, or errors",
    Effect.gen(function* () {
      const { audit } = yield* World
      const url = `https://example.com/${token}`
      const { signingSecret, ...made } = yield* create({ target: "webhook", url })
      const { alertId } = made
      const change = Alerts.use((alerts) => alerts.update("o", alertId, { name: "n" })).pipe(asAdministrator)
      const seen = [made, yield* change, yield* list(), [...audit.values()]]
      seen.push((yield* failureOf(create({ url: `http://example.com/${token}` }))) as never)
      seen.push((yield* failureOf(create({ url: `https://me:${token}@example.com/` }))) as never)
      for (const secret of [token, signingSecret!]) assert.notInclude(JSON.stringify(seen), secret)
      const stored = (yield* AlertWorld).alerts.get(alertId)!.alert
      assert.deepStrictEqual(JSON.parse(JSON.parse(stored.secret)[1]), { url, signingSecret })
    }),
  )

  run(
    "are tested at once, ten times a minute",
    Effect.gen(function* () {
      const { alertId } = yield* create()
      const test = (id = alertId) => Alerts.use((alerts) => alerts.test("o", id)).pipe(asAdministrator)
      assert.deepStrictEqual(yield* test(), { error: null })
      assert.include((yield* texts)[0], "Webhooks fail: a test.\nNothing is wrong.")
      yield* answers(answer(404))
      assert.deepStrictEqual(yield* test(), { error: "The target answered with status 404." })
      assert.include(yield* failureOf(test(unknownId)), "There is no such alert.")
      const stored = (yield* AlertWorld).alerts.get(alertId)!
      stored.alert = { ...stored.alert, secret: JSON.stringify(["another", "{}"]) } satisfies StoredAlert
      assert.include((yield* test()).error, "The target cannot be read: ENCRYPTION_KEY")
      for (let n = 4; n < 10; n++) yield* test()
      assert.include(yield* failureOf(test()), "The limit of tests of alerts per minute is reached")
      yield* TestClock.adjust("1 minute")
      yield* test()
    }),
  )

  run(
    "are of those who manage the org, and of the administrator alone",
    Effect.gen(function* () {
      const { alertId } = yield* create()
      const mine = Alerts.use((alerts) => alerts.list("o", { limit: 10 }))
      assert.lengthOf((yield* mine.pipe(as("o"))).alerts, 1)
      assert.include(yield* failureOf(mine.pipe(as("p"))), "There is no such org.")
      assert.include(yield* failureOf(Alerts.use((alerts) => alerts.test("o", alertId)).pipe(as("p"))), "no such org")
      const change = Alerts.use((alerts) => alerts.update("o", alertId, { name: "n" }))
      assert.include(yield* failureOf(change.pipe(as("p"))), "no such org")
      assert.include(yield* failureOf(Alerts.use((alerts) => alerts.remove("o", alertId)).pipe(as("p"))), "no such org")
      const service = Alerts.use((alerts) => alerts.list(null, { limit: 10 }))
      assert.include(yield* failureOf(service.pipe(as("o"))), "Only the administrator")
    }),
  )

  const refusals: ReadonlyArray<readonly [Partial<typeof CreateAlert.Type>, string]> = [
    [{ threshold: 0 }, "threshold must be a whole number from 1 to 7200: endpoint_failing needs it."],
    [{ condition: "endpoint_deactivated" }, "threshold must be absent: endpoint_deactivated has none."],
    [
      { condition: "jobs_failed", threshold: -1 },
      "threshold must be a whole number from 0 to 1000000: jobs_failed needs it.",
    ],
    [
      { condition: "limit_near", threshold: 101 },
      "threshold must be a whole number from 1 to 100: limit_near needs it.",
    ],
    [{ url: "http://hooks.slack.com/x" }, "url must be an https URL."],
    [{ url: "https://10.0.0.1/x" }, "url must not have a private, reserved or special address as its host."],
  ]
  it.effect.each(refusals)("refuse %o: %s", ([input, sentence]) =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      assert.strictEqual((yield* Effect.flip(create(input))).error, sentence)
    }).pipe(Effect.provide(services)),
  )

  const noServer =
    "url must be smtps://USER:PASSWORD@HOST:PORT?from=ADDRESS&to=ADDRESS,ADDRESS or smtp://, with at most 10 addresses to " +
    "send to; encode special characters of the password."
  const notCalled = "url must not have a private, reserved or special address as its host."
  const mail = "?from=a@example.com&to=b@example.com"
  const eleven = Array.from({ length: 11 }, (_, n) => `${n}@example.com`).join(",")
  const servers: ReadonlyArray<readonly [string, string | null]> = [
    [`smtps://mail.example.com${mail}`, null],
    [`smtp://me:p%40ss@mail.example.com:2525/${mail},c@example.com`, null],
    [`https://mail.example.com${mail}`, noServer],
    ["smtp://mail.example.com", noServer],
    ["smtp://mail.example.com/?ignoreTLS=true", noServer],
    ["smtp://mail.example.com?from=a@example.com", noServer],
    ["smtp://mail.example.com?from=a@example.com&to=", noServer],
    ["smtp://mail.example.com?from=a@example.com,b@example.com&to=c@example.com", noServer],
    ["smtp://mail.example.com?from=a@example.com&to=b%0d%0aBcc:c@example.com", noServer],
    [`smtp://mail.example.com?from=a@example.com&to=${eleven}`, noServer],
    [`smtp://mail.example.com/path${mail}`, noServer],
    [`smtp://${mail}`, noServer],
    [`smtp://mail example.com${mail}`, noServer],
    [`smtps://127.0.0.1${mail}`, notCalled],
    [`smtps://mail.example.com:0${mail}`, "url must have a port from 1 to 65,535, or none."],
    [`smtps://0x7f.1${mail}`, notCalled],
    [`smtp://[::1]:25${mail}`, notCalled],
  ]
  it.effect.each(servers)("take only a mail server as the url of e-mails: %s", ([url, sentence]) =>
    Effect.gen(function* () {
      yield* makeOrg("o")
      const made = yield* Effect.result(create({ target: "email", url }))
      assert.strictEqual(made._tag === "Success" ? null : made.failure.error, sentence)
    }).pipe(Effect.provide(services)),
  )
})
