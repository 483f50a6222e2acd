import { assert } from "@effect/vitest"
import { DateTime, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { SweepRepository } from "#src/domain/sweeps/Sweeps.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as AuditLogSql from "#src/infrastructure/audit/auditLogSql.ts"
import * as DeliveryQueueSql from "#src/infrastructure/webhooks/deliveryQueueSql.ts"
import * as DeploymentsSql from "#src/infrastructure/deployments/deploymentsSql.ts"
import * as JobsSql from "#src/infrastructure/jobs/jobsSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import * as SweepsSql from "#src/infrastructure/sweeps/sweepsSql.ts"
import * as WebhookEndpointsSql from "#src/infrastructure/webhooks/webhookEndpointsSql.ts"
import * as crypto from "../../fakes/crypto.ts"
import { databases } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import {
  at,
  everyOrg,
  failureOf,
  insertOrg,
  insertProject,
  insertTenant,
  newEntry,
  newKey,
  newRepository,
  noRows,
  noSuchOrg,
  noSuchProject,
  push,
  register,
} from "../support.ts"
import { fillTables, tablesWith } from "./everyTable.ts"
import { claim, insertEndpoint, insertJob, makeEvent } from "../webhooks/webhookSupport.ts"

/** Promise (Deleted is gone): Nothing of a deleted org is left in any table but its audit log. */

const repositories = Layer.mergeAll(
  ApiKeysSql.layer,
  AuditLogSql.layer,
  DeliveryQueueSql.layer,
  DeploymentsSql.layer,
  JobsSql.layer,
  OrgsSql.layer,
  ProjectsSql.layer,
  SweepsSql.layer.pipe(Layer.provide(JobsSql.layer)),
  WebhookEndpointsSql.layer,
).pipe(Layer.provide(crypto.layer))

/** An operation that must fail. */
type Tried = Effect.Effect<unknown, unknown, OrgRepository | ProjectRepository | DeploymentRepository>

const removeOrg = (orgId: string, seconds = 0) =>
  Effect.gen(function* () {
    const entry = newEntry({ action: "org.delete", target: orgId })
    yield* OrgRepository.use((orgs) => orgs.remove(orgId, at(seconds), entry))
    return entry.id
  })

/** Runs batches of a sweep until it waits or is finished; returns their number. */
const runSweep = Effect.fnUntraced(function* (sweepId: string, now: DateTime.Utc, limit = 1_000) {
  const sweeps = yield* SweepRepository
  for (let batches = 1; ; batches++) {
    const swept = yield* sweeps.advance(sweepId, now, limit)
    assert.isAtMost(swept?.rows ?? 0, limit)
    if (swept === null || swept.isDone || swept.isWaiting === true) return { batches, swept }
  }
})

const later = (seconds: number) => DateTime.add(at(0), { seconds })

for (const [name, database] of Object.entries({ embedded: databases.embedded, postgres: databases.postgres })) {
  layer(Layer.provideMerge(repositories, database), { excludeTestServices: true })(`erasure, ${name}`, (it) => {
    it.effect(
      "an erasure removes a deleted org from every table but the audit log, and touches no other org",
      function* () {
        const sql = yield* SqlClient.SqlClient
        const [{ orgId }, other] = [yield* insertTenant, yield* insertTenant]
        const filled = yield* fillTables(orgId)
        yield* fillTables(other.orgId)
        assert.include(
          yield* failureOf(OrgRepository.use((orgs) => Effect.asVoid(orgs.erasure(other.orgId)))),
          "There is no erasure of this org",
        )
        const before = yield* tablesWith(other.orgId)
        assert.includeMembers(yield* tablesWith(orgId), filled)
        yield* sql`
          INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
          SELECT ${orgId} || n, ${orgId}, 'w', true, 'queued', now(), now() FROM generate_series(1, 2500) AS n`

        const sweepId = yield* removeOrg(orgId)
        const first = yield* runSweep(sweepId, later(1), 500)
        // A request from before the deletion may still commit a row.
        assert.isTrue(first.swept?.isWaiting)
        assert.isAtLeast(first.batches, 6)
        assert.sameMembers(yield* tablesWith(orgId), ["audit_log", "org_owners", "sweeps"])
        const orgs = yield* OrgRepository
        const running = yield* orgs.erasure(orgId)
        assert.deepInclude(running, { orgId, deletedAt: at(0), actor: "administrator", endedAt: null, progress: 100 })
        assert.isAtLeast(running.erased.jobs, 2_500)
        yield* sql`
          INSERT INTO jobs (id, org_id, workflow, skip_callbacks, status, created_at, updated_at)
          VALUES (${`${orgId} late`}, ${orgId}, 'w', true, 'queued', now(), now())`
        const last = yield* runSweep(sweepId, later(61))
        assert.isTrue(last.swept?.isDone)
        assert.deepStrictEqual(yield* tablesWith(orgId), ["audit_log"])
        const jobs = running.erased.jobs + 1
        assert.deepStrictEqual(yield* orgs.erasure(orgId), {
          ...running,
          endedAt: later(61),
          erased: { ...running.erased, jobs },
        })
        const [receipt] = (yield* AuditRepository.use((audit) => audit.list(orgId, { limit: 1 }))).items
        assert.deepInclude(receipt, { action: "org.erase", actor: "service", target: orgId, at: later(61) })
        const { deletedAt, deletedBy, erased } = receipt!.details as Record<string, Record<string, number>>
        assert.deepStrictEqual([String(deletedAt), String(deletedBy)], [DateTime.formatIso(at(0)), "administrator"])
        assert.deepInclude(erased, { jobs, projects: running.erased.projects })
        assert.deepStrictEqual(yield* tablesWith(other.orgId), before)
        yield* sql`DELETE FROM sweeps WHERE org_id = ${other.orgId}`
      },
    )

    it.effect(
      "a deleted org is not found from its deletion on, and the administrator still reads its audit log",
      function* () {
        const [keys, orgs, projects] = [yield* ApiKeyRepository, yield* OrgRepository, yield* ProjectRepository]
        const repository = newRepository()
        const { orgId } = yield* insertOrg()
        yield* orgs.update(orgId, { owners: [{ provider: "github", owner: repository.owner }] }, newEntry())
        const { projectId } = yield* register(push(repository), { link: true })
        const [orgKey, projectKey] = [yield* newKey(), yield* newKey()]
        yield* keys.insertForOrg(orgId, orgKey, newEntry())
        yield* keys.insertForProject(everyOrg, projectId, projectKey, newEntry())
        const sweepId = yield* removeOrg(orgId)

        assert.strictEqual((yield* keys.findByHashes([orgKey.hash, projectKey.hash])).size, 0)
        assert.deepStrictEqual(yield* keys.list(orgId, { limit: 10 }), noRows)
        const gone = [orgs.find(orgId), orgs.findWithUsage(orgId), removeOrg(orgId), insertProject(orgId)]
        for (const tried of gone) assert.strictEqual(yield* failureOf(Effect.asVoid(tried as Tried)), noSuchOrg)
        assert.strictEqual(yield* failureOf(keys.insertForOrg(orgId, yield* newKey(), newEntry())), noSuchOrg)
        const now = at(1)
        const goneProjects = [
          projects.find(everyOrg, projectId),
          projects.update(everyOrg, projectId, { name: "x" }, now, newEntry()),
          projects.findLink(everyOrg, projectId),
          projects.remove(everyOrg, projectId, now, newEntry()),
          keys.insertForProject(everyOrg, projectId, yield* newKey(), newEntry()),
          DeploymentRepository.use((all) => all.promote(everyOrg, projectId, "x", now, newEntry())),
        ]
        for (const tried of goneProjects) {
          assert.strictEqual(yield* failureOf(Effect.asVoid(tried as Tried)), noSuchProject)
        }
        assert.deepStrictEqual(
          yield* DeploymentRepository.use((all) => all.list(everyOrg, projectId, { limit: 10 })),
          noRows,
        )

        // The owner is free when the erasure has ended; the repository is free at once.
        const another = yield* insertOrg()
        const owners = [{ provider: "github", owner: repository.owner }]
        assert.include(
          yield* failureOf(orgs.update(another.orgId, { owners }, newEntry())),
          "another org has the owner",
        )
        assert.strictEqual((yield* register(push(repository), { link: true })).outcome._tag, "NotLinked")
        const made = yield* register(push(repository))
        assert.notStrictEqual(made.projectId, projectId)
        yield* runSweep(sweepId, later(1))
        yield* runSweep(sweepId, later(61))
        yield* orgs.update(another.orgId, { owners }, newEntry())

        const log = yield* AuditRepository.use((audit) => audit.list(orgId, { limit: 100 }))
        assert.deepStrictEqual(
          log.items.slice(0, 2).map(({ action }) => action),
          ["org.erase", "org.delete"],
        )
      },
    )

    it.effect("deliveries and jobs of a deleted org are not claimed from its deletion on", function* () {
      const { orgId } = yield* insertOrg()
      const endpoints = [yield* insertEndpoint(orgId), yield* insertEndpoint(orgId)]
      for (let n = 0; n < 3; n++) yield* makeEvent(orgId, at(0))
      yield* insertJob(orgId)
      const own = (delivery: { readonly endpointId: string | null }) => endpoints.includes(delivery.endpointId ?? "")
      yield* removeOrg(orgId)
      for (let n = 0; n < 3; n++) {
        const claimed = yield* claim(later(600 + n))
        assert.deepStrictEqual(claimed.filter(own), [])
      }
      const jobs = yield* JobRepository
      const asked = { workflows: undefined, limit: 10, now: later(1), leaseUntil: later(60) }
      assert.deepStrictEqual(yield* jobs.claim(orgId, asked), [])
    })

    // Seen failing: with other orgs and no default one, such a project was refused, or was in the only org.
    it.effect("a project without an org is in the default org, which is made again when it was deleted", function* () {
      const { orgId: other } = yield* insertOrg()
      const first = yield* insertProject(undefined)
      assert.strictEqual((yield* insertProject(undefined)).orgId, first.orgId)
      yield* removeOrg(first.orgId)
      const again = yield* Effect.replicateEffect(insertProject(undefined), 20, { concurrency: "unbounded" })
      assert.strictEqual(new Set(again.map(({ orgId }) => orgId)).size, 1)
      assert.notInclude([first.orgId, other], again[0]!.orgId)
      assert.strictEqual((yield* (yield* OrgRepository).find(again[0]!.orgId)).name, "Default")
    })

    it.effect("a deleted project is not found from its deletion on, and its rows are removed in batches", function* () {
      const sql = yield* SqlClient.SqlClient
      const [keys, projects] = [yield* ApiKeyRepository, yield* ProjectRepository]
      const repository = newRepository()
      const { projectId } = yield* register(push(repository))
      const { orgId, subdomain } = yield* projects.find(everyOrg, projectId)
      const sibling = yield* insertProject(orgId)
      for (let n = 0; n < 25; n++) yield* register(push(repository))
      const added = yield* Effect.replicateEffect(newKey(), 25)
      for (const key of added) yield* keys.insertForProject(everyOrg, projectId, key, newEntry())
      yield* sql`
          INSERT INTO project_docs (org_id, project_id, is_public, keep_questions, revision, updated_at)
          VALUES (${orgId}, ${projectId}, false, false, 1, now())`
      yield* sql`
          INSERT INTO docs_pages (org_id, project_id, edition, slug, title, description, markdown)
          SELECT ${orgId}, ${projectId}, 'e', n, '', '', '' FROM generate_series(1, 25) AS n`
      yield* sql`
          INSERT INTO docs_questions (org_id, project_id, id, asked_at, question, topic, found)
          SELECT ${orgId}, ${projectId}, n, now(), '', '', true FROM generate_series(1, 25) AS n`
      const kept = yield* newKey()
      yield* keys.insertForProject(everyOrg, sibling.projectId, kept, newEntry())

      const entry = newEntry({ action: "project.delete", target: projectId })
      assert.strictEqual(yield* projects.remove(everyOrg, projectId, at(0), entry), orgId)
      assert.strictEqual(yield* failureOf(projects.find(everyOrg, projectId)), noSuchProject)
      const found = yield* keys.findByHashes([...added.map(({ hash }) => hash), kept.hash])
      assert.deepStrictEqual([...found.keys()], [kept.hash])
      const wrong = added[0]!
      const replacement = { ...(yield* newKey()), now: at(1), expiresAt: null, oldKeyUntil: at(1), settings: {} }
      for (const tried of [
        keys.remove(orgId, wrong.id, newEntry()),
        keys.rotate(orgId, wrong.id, replacement, newEntry()),
      ]) {
        assert.include(yield* failureOf(Effect.asVoid(tried as Tried)), "not_found")
      }
      // The names of the project are free at once.
      const again = yield* register(push(repository))
      assert.strictEqual((yield* projects.find(everyOrg, again.projectId)).subdomain, subdomain)

      const first = yield* runSweep(entry.id, later(1), 10)
      assert.isAtLeast(first.batches, 5)
      const last = yield* runSweep(entry.id, later(61), 10)
      assert.isTrue(last.swept?.isDone)
      assert.deepStrictEqual(yield* tablesWith(projectId), ["audit_log"])
      assert.strictEqual((yield* sql`SELECT id FROM api_keys WHERE id = ${kept.id}`).length, 1)
    })
  })
}
