import { assert, describe } from "@effect/vitest"
import { DateTime, Effect } from "effect"
import { TestClock } from "effect/testing"
import { ApiKeys } from "#src/domain/keys/ApiKeys.ts"
import { AuditLog, RequestId } from "#src/domain/audit/AuditLog.ts"
import { Principal } from "#src/domain/Principal.ts"
import type { Unavailable } from "#src/domain/Errors.ts"
import { JobSchedules } from "#src/domain/jobs/JobSchedules.ts"
import { Orgs } from "#src/domain/orgs/Orgs.ts"
import { Projects } from "#src/domain/projects/Projects.ts"
import { WebhookEndpoints } from "#src/domain/webhooks/WebhookEndpoints.ts"
import { World } from "../../fakes/World.ts"
import { it } from "../../support/it.ts"
import { as, asAdministrator, asAnonymous, makeTenant, nowPlus, outcomeOf, services, unknownId } from "../support.ts"
import * as Webhooks from "../webhooks/webhookSupport.ts"

const listOf = (orgId: string, page = {}) =>
  AuditLog.use((audit) => asAdministrator(audit.list(orgId, { limit: 100, ...page })))
/** The action, target and details of the org's entries since its creation, oldest first. */
const entriesOf = (orgId: string) =>
  Effect.map(listOf(orgId), ({ entries }) =>
    entries.toReversed().map(({ action, target, details }) => [action, target, details] as const),
  )

describe("the audit log of the platform's operations", () => {
  it.effect("has every change, with the previous values and without secrets", () =>
    Effect.gen(function* () {
      const { orgId, projectId, orgKey, projectKey } = yield* makeTenant
      const [keys, projects] = [yield* ApiKeys, yield* Projects]
      const expiresAt = yield* nowPlus(60_000)
      const rateLimit = { limit: 5, window: 1 }
      const input = { name: "limited", projectId, expiresAt, rateLimit }
      const { limited, next } = yield* asAdministrator(
        Effect.gen(function* () {
          const limited = yield* keys.createForProject(input)
          const next = yield* keys.rotate(orgId, limited.id, { overlapSeconds: 5 })
          yield* keys.remove(orgId, orgKey.id)
          yield* projects.update(projectId, { name: "handbook", subdomain: null })
          return { limited, next }
        }),
      )
      const key = { expiresAt: null, rateLimit: null }
      assert.deepStrictEqual(yield* entriesOf(orgId), [
        ["org.create", orgId, { name: "Acme" }],
        ["project.create", projectId, { name: "docs" }],
        ["key.create", orgKey.id, { name: "org", prefix: orgKey.prefix, projectId: null, ...key }],
        ["key.create", projectKey.id, { name: "project", prefix: projectKey.prefix, projectId, ...key }],
        [
          "key.create",
          limited.id,
          { name: "limited", prefix: limited.prefix, projectId, expiresAt: DateTime.formatIso(expiresAt), rateLimit },
        ],
        ["key.rotate", limited.id, { name: "limited", replacedBy: next.id, prefix: next.prefix, overlapSeconds: 5 }],
        ["key.delete", orgKey.id, {}],
        ["project.update", projectId, { name: "handbook", subdomain: null }],
      ])
    }).pipe(Effect.provide(services())),
  )

  // Seen failing without the limit.
  it.effect("takes 600 changes a minute by the keys and portal sessions of an org, and all of the administrator", () =>
    Effect.gen(function* () {
      const { orgId, orgKey } = yield* makeTenant
      const { entry } = yield* AuditLog
      const change = entry({ action: "key.update", target: orgKey.id, details: {} })
      const byKey = as(Principal.OrgKey({ keyId: orgKey.id, orgId }))(change)
      const byPortal = as(
        Principal.Portal({
          portalId: "p",
          orgId,
          may: { webhooks: true, keys: null },
          madeBy: "key:k",
        }),
      )(change)
      yield* Effect.replicateEffect(byKey, 300)
      yield* Effect.replicateEffect(byPortal, 300)
      for (const by of [byKey, byPortal]) {
        assert.deepInclude(yield* Effect.flip(by), { _tag: "TooManyRequests", retryAfterSeconds: 1 })
      }
      yield* Effect.replicateEffect(asAdministrator(change), 700)
      yield* as(Principal.OrgAdministrator({ orgId, isAnonymous: false }))(change)
      yield* as(Principal.OrgKey({ keyId: orgKey.id, orgId: "another" }))(change)
      yield* as(Principal.OrgKey({ keyId: orgKey.id, orgId }), true)(change)
      yield* TestClock.adjust("100 millis")
      yield* byKey
      assert.strictEqual((yield* Effect.flip(byKey))._tag, "TooManyRequests")
    }).pipe(Effect.provide(services())),
  )

  it.effect("says who made a change, when, and with which request", () =>
    Effect.gen(function* () {
      const { orgId, projectId, orgKey, projectKey } = yield* makeTenant
      const { create } = yield* Projects
      yield* TestClock.adjust("1 minute")
      const person = { subject: "s", name: "Jo Doe", email: "jo@example.com", role: "owner" } as const
      const { role: _, ...named } = person
      const callers = [
        [as(Principal.Administrator()), "administrator"],
        [as(Principal.OrgKey({ keyId: orgKey.id, orgId })), `key:${orgKey.id}`],
        [as(Principal.ProjectKey({ keyId: projectKey.id, orgId, projectId }), true), `key:${projectKey.id}`],
        [as(Principal.Anonymous(), true), "anonymous"],
        [as(Principal.Person({ person })), "person:s"],
        [as(Principal.OrgPerson({ person, orgId })), "person:s"],
      ] as const
      for (const [by, actor] of callers) {
        yield* by(create({ name: "p", orgId })).pipe(Effect.provideService(RequestId, `request of ${actor}`))
        const [entry] = (yield* listOf(orgId, { limit: 1 })).entries
        const expected = { actor, person: actor === "person:s" ? named : null, at: yield* DateTime.now }
        assert.deepInclude(entry, { ...expected, requestId: `request of ${actor}` })
      }
      assert.strictEqual((yield* listOf(orgId)).entries.at(-1)!.requestId, null)
    }).pipe(Effect.provide(services())),
  )

  it.effect("has no entry for refused operations, reads, or the daily work of a gateway", () =>
    Effect.gen(function* () {
      const { orgId, projectId, orgKey } = yield* makeTenant
      const [keys, orgs, projects] = [yield* ApiKeys, yield* Orgs, yield* Projects]
      const { size } = (yield* World).audit
      const late = { name: "late", expiresAt: yield* nowPlus(0) }
      const refused = [
        asAnonymous(orgs.create({ name: "o" })),
        asAdministrator(keys.createForOrg(orgId, late)),
        asAdministrator(keys.createForOrg(unknownId, { name: "k" })),
        asAdministrator(keys.remove(orgId, unknownId)),
        asAdministrator(keys.rotate(orgId, unknownId, {})),
        asAdministrator(projects.update(unknownId, { name: "p" })),
        as(Principal.ProjectKey({ keyId: orgKey.id, orgId, projectId }))(keys.remove(orgId, orgKey.id)),
      ]
      for (const attempt of refused)
        assert.notStrictEqual(yield* outcomeOf(attempt as Effect.Effect<unknown, Unavailable>), "ok")
      yield* asAdministrator(keys.list(orgId, { limit: 10 }))
      assert.strictEqual((yield* World).audit.size, size)
    }).pipe(Effect.provide(services())),
  )
})

describe("access to the audit log", () => {
  it.effect("those who may read the org's keys read it page by page, newest first", () =>
    Effect.gen(function* () {
      const { orgId, projectId, orgKey, projectKey } = yield* makeTenant
      const { list } = yield* AuditLog
      const first = yield* listOf(orgId, { limit: 3 })
      const rest = yield* listOf(orgId, { limit: 3, cursor: first.nextCursor })
      assert.deepStrictEqual(
        [...first.entries, ...rest.entries].map(({ target }) => target),
        [projectKey.id, orgKey.id, projectId, orgId],
      )
      assert.strictEqual(rest.nextCursor, null)
      const outcomes = [
        [as(Principal.OrgKey({ keyId: "k", orgId })), "ok"],
        [as(Principal.OrgKey({ keyId: "k", orgId: "another" })), "NotFound"],
        [as(Principal.ProjectKey({ keyId: "k", orgId, projectId })), "Forbidden"],
        [asAnonymous, "Unauthorized"],
        [as(Principal.Anonymous(), true), "ok"],
      ] as const
      for (const [by, outcome] of outcomes) {
        assert.strictEqual(yield* outcomeOf(by(list(orgId, { limit: 1 }))), outcome)
      }
      assert.strictEqual(yield* outcomeOf(listOf(unknownId)), "NotFound")
    }).pipe(Effect.provide(services())),
  )
})

describe("the audit log of the webhook interface's operations", () => {
  it.effect("has changes of endpoints and schedules, by the key that made them, without secrets", () =>
    Effect.gen(function* () {
      const [endpoints, schedules] = [yield* WebhookEndpoints, yield* JobSchedules]
      const orgId = yield* Webhooks.makeOrg("o")
      const { endpoint, schedule } = yield* Webhooks.as("o")(
        Effect.gen(function* () {
          const url = "https://example.com:8443/in/T0P-S3CRET?token=S3CRET"
          const { webhook_endpoint_id: endpoint } = yield* endpoints.create({ url, signing_secret: "S3CRET" })
          yield* endpoints.update({ id: endpoint, active: false, signing_secret: "S3CRET-2" })
          yield* endpoints.update({ id: endpoint, url: "https://example.org/S3CRET", description: null })
          yield* endpoints.update({ id: endpoint, url: "https://example.org/S3CRET" })
          yield* endpoints.remove(endpoint)
          const schedule = yield* schedules.create({
            workflow: "w",
            cron: "0 4 * * *",
            callback_secret: "S3CRET",
            input: "S3CRET",
          })
          yield* schedules.remove(schedule)
          assert.strictEqual(yield* outcomeOf(endpoints.remove(endpoint)), "NotFound")
          return { endpoint, schedule }
        }),
      )
      assert.deepStrictEqual(yield* entriesOf(orgId), [
        ["webhook_endpoint.create", endpoint, { host: "example.com:8443", active: true }],
        ["webhook_endpoint.update", endpoint, { active: false, secretChanged: true }],
        [
          "webhook_endpoint.update",
          endpoint,
          {
            host: "example.org",
            url: "https://example.org/…",
            urlBefore: "https://example.com:8443/in/T0P-…?…",
            description: null,
            secretChanged: false,
          },
        ],
        // The same URL again is no change of it.
        ["webhook_endpoint.update", endpoint, { secretChanged: false }],
        ["webhook_endpoint.delete", endpoint, {}],
        ["schedule.create", schedule, { workflow: "w", cron: "0 4 * * *", timezone: "UTC" }],
        ["schedule.delete", schedule, {}],
      ])
      const { entries } = yield* listOf(orgId)
      assert.deepStrictEqual([...new Set(entries.map(({ actor }) => actor))], ["key:key of o"])
    }).pipe(Effect.provide(Webhooks.services())),
  )
})
