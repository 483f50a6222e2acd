import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { AuditRepository } from "#src/domain/audit/AuditLog.ts"
import { DeploymentRepository } from "#src/domain/deployments/Deployments.ts"
import { JobScheduleRepository } from "#src/domain/jobs/JobScheduleRepository.ts"
import { JobRepository } from "#src/domain/jobs/JobRepository.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import type { Found, Page } from "#src/domain/Page.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { defaultSettings, WebhookEndpointRepository } from "#src/domain/webhooks/WebhookEndpointRepository.ts"
import { insertSchedule } from "./jobs/schedules.ts"
import {
  everyOrg,
  insertOrg,
  insertProject,
  type It as PlatformIt,
  newEntry,
  newId,
  newKey,
  newRepository,
  oneOrg,
  push,
  register,
} from "./support.ts"
import { completed, epoch, failed, finish, insertJob, type It, plus } from "./webhooks/webhookSupport.ts"

const MiB = 1024 * 1024
/** Two of these fit into 4 MiB, three do not. */
const large = "é".repeat((1.5 * MiB) / 2)
/** Larger than a page, and so on a page of its own. */
const huge = "h".repeat(5 * MiB)
/** In the order of the list: pages of one, two, two, one and one. */
const sizes = [huge, large, large, large, "small", huge, "small"]
const pages: ReadonlyArray<number> = [1, 2, 2, 1, 1]

/** Asserts that a list returns these ids in pages of at most 4 MiB, and in smaller pages on request. */
const assertCuts = Effect.fnUntraced(function* <A, E, R>(
  list: (page: Page) => Effect.Effect<Found<A>, E, R>,
  id: (row: A) => string,
  expected: ReadonlyArray<string>,
  before?: string,
  lengths = pages,
) {
  const walk = Effect.fnUntraced(function* (limit: number) {
    const found: Array<ReadonlyArray<string>> = []
    let cursor = before
    for (let hasMore = true; hasMore;) {
      const page = yield* list({ limit, cursor })
      found.push(page.items.map(id))
      cursor = found.at(-1)!.at(-1)
      hasMore = page.hasMore
    }
    return found
  })
  const found = yield* walk(100)
  assert.deepStrictEqual(found.flat(), expected)
  assert.deepStrictEqual(
    found.map((page) => page.length),
    lengths,
  )
  assert.deepStrictEqual(
    yield* walk(1),
    expected.map((one) => [one]),
  )
  // The limit of rows applies before the limit of bytes.
  const two = yield* list({ limit: 2, cursor: expected[2] })
  assert.deepStrictEqual([two.items.map(id), two.hasMore], [expected.slice(3, 5), true])
})

/** The contract of lists with long texts in the platform's repositories. */
export const platformPages = (it: PlatformIt) => {
  it.effect("pages: lists of orgs, projects and audit entries end at 4 MiB, with at least one row", function* () {
    const [orgs, projects] = [yield* OrgRepository, yield* ProjectRepository]
    const [keys, audit] = [yield* ApiKeyRepository, yield* AuditRepository]
    const before = yield* newId
    const orgIds: Array<string> = []
    for (const name of sizes) orgIds.push((yield* insertOrg(name)).orgId)
    yield* assertCuts(
      (page) => orgs.list(everyOrg, page),
      (row) => row.orgId,
      orgIds,
      before,
    )

    const { orgId } = yield* insertOrg()
    const projectIds: Array<string> = []
    for (const name of sizes) projectIds.push((yield* insertProject(orgId, name)).projectId)
    yield* assertCuts(
      (page) => projects.list(oneOrg(orgId), page),
      (row) => row.projectId,
      projectIds,
    )

    // The list has the newest first.
    const { orgId: audited } = yield* insertOrg()
    const entryIds = (yield* audit.list(audited, { limit: 1 })).items.map(({ id }) => id)
    for (const name of sizes.toReversed()) {
      const entry = newEntry({ details: { name } })
      yield* keys.insertForOrg(audited, yield* newKey(), entry)
      entryIds.unshift(entry.id)
    }
    yield* assertCuts(
      (page) => audit.list(audited, page),
      (row) => row.id,
      entryIds,
      undefined,
      [1, 2, 2, 1, 2],
    )
  })

  it.effect("pages: lists of deployments end at 4 MiB, with at least one row", function* () {
    const deployments = yield* DeploymentRepository
    const repository = newRepository()
    const ids: Array<string> = []
    let projectId = ""
    for (const actor of sizes.toReversed()) {
      const registered = yield* register(push(repository, { actor }))
      projectId = registered.projectId
      ids.unshift(registered.deploymentId)
    }
    yield* assertCuts(
      (page) => deployments.list(everyOrg, projectId, page),
      (row) => row.id,
      ids,
    )
  })
}

/** The contract of lists with long texts in the webhook interface's repositories. */
export const webhookPages = (it: It) => {
  it.effect("pages: lists of jobs, schedules and endpoints end at 4 MiB, with at least one row", function* () {
    const [jobs, schedules] = [yield* JobRepository, yield* JobScheduleRepository]
    const endpoints = yield* WebhookEndpointRepository
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const ids: Array<string> = []
    // Newest first. Every long field counts: input, result, error and stack.
    for (const [n, text] of sizes.toReversed().entries()) {
      const id = yield* insertJob(orgId, n % 3 === 0 ? { input: text } : {})
      if (n % 3 === 1) yield* finish(orgId, id, completed(text), now)
      if (n % 3 === 2) yield* finish(orgId, id, n % 2 === 0 ? failed(text) : failed("", text), now)
      ids.unshift(id)
    }
    yield* assertCuts(
      (page) => jobs.list(orgId, {}, page),
      (row) => row.job_id,
      ids,
    )

    const scheduleIds: Array<string> = []
    for (const input of sizes) scheduleIds.push(yield* insertSchedule(orgId, plus(now, 1_000_000_000), { input }))
    yield* assertCuts(
      (page) => schedules.list(orgId, page),
      (row) => row.schedule_id,
      scheduleIds,
    )

    const endpointIds: Array<string> = []
    for (const description of sizes) {
      const id = yield* newId
      const endpoint = {
        id,
        orgId,
        url: "https://example.com/",
        secret: "s",
        description,
        active: true,
        now,
        ...defaultSettings,
      }
      yield* endpoints.insert(endpoint, newEntry())
      endpointIds.push(id)
    }
    yield* assertCuts(
      (page) => endpoints.list(orgId, page),
      (row) => row.webhook_endpoint_id,
      endpointIds,
    )
  })

  it.effect("pages: a claim takes at most 4 MiB of inputs, and at least one job", function* () {
    const { claim } = yield* JobRepository
    const { orgId } = yield* insertOrg()
    const now = epoch()
    const ids: Array<string> = []
    for (const input of sizes) ids.push(yield* insertJob(orgId, { input }))
    const claimed: Array<ReadonlyArray<string>> = []
    for (let n = 0; n <= pages.length; n++) {
      const jobs = yield* claim(orgId, { workflows: undefined, limit: 100, now, leaseUntil: plus(now, 60) })
      claimed.push(jobs.map(({ job_id }) => job_id))
    }
    assert.deepStrictEqual(claimed.flat(), ids)
    assert.deepStrictEqual(
      claimed.map((page) => page.length),
      [...pages, 0],
    )
  })
}
