// Runs on PostgreSQL only: the listener has a connection of its own.
import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { ApiKeyRepository } from "#src/domain/keys/ApiKeyRepository.ts"
import { OrgRepository } from "#src/domain/orgs/Orgs.ts"
import { ProjectRepository } from "#src/domain/projects/Projects.ts"
import { RoleRepository } from "#src/domain/keys/Roles.ts"
import * as ApiKeysSql from "#src/infrastructure/keys/apiKeysSql.ts"
import * as RolesSql from "#src/infrastructure/keys/rolesSql.ts"
import * as OrgsSql from "#src/infrastructure/orgs/orgsSql.ts"
import * as ProjectsSql from "#src/infrastructure/projects/projectsSql.ts"
import { revocationChannel } from "#src/infrastructure/revocations.ts"
import { at, everyOrg, insertOrg, insertProject, newEntry, newKey } from "../../contract/support.ts"
import { databases, heard } from "../../support/databases.ts"
import { layer } from "../../support/it.ts"
import { within } from "../../support/wait.ts"

const repositories = Layer.mergeAll(ApiKeysSql.layer, OrgsSql.layer, ProjectsSql.layer, RolesSql.layer)

const keys: typeof ApiKeyRepository.use = (use) => ApiKeyRepository.use(use)

/** A project of a new org, and a key of it. */
const insertAll = Effect.gen(function* () {
  const { orgId } = yield* insertOrg()
  const { projectId } = yield* insertProject(orgId)
  const key = yield* newKey()
  yield* keys((all) => all.insertForOrg(orgId, key, newEntry()))
  return { orgId, projectId, id: key.id, hash: key.hash }
})
type Made = Effect.Success<typeof insertAll>

/** A change, and what replicas are told. */
interface Change {
  readonly run: (
    made: Made,
  ) => Effect.Effect<unknown, unknown, ApiKeyRepository | OrgRepository | ProjectRepository | RoleRepository>
  readonly told: (made: Made) => string | ReadonlyArray<string>
}
const change = (run: Change["run"], told: Change["told"] = ({ id }) => id): Change => ({ run, told })

const rotate = (oldKeyUntil: number) =>
  change(({ id: keyId, orgId }) =>
    Effect.gen(function* () {
      const { hash, id } = yield* newKey()
      const times = { now: at(10), expiresAt: undefined, oldKeyUntil: at(oldKeyUntil) }
      const replacement = { id, hash, prefix: "svc_new", keyPrefix: "svc", ...times, settings: {} }
      yield* keys((all) => all.rotate(orgId, keyId, replacement, newEntry()))
    }),
  )

/** What each method of the repository changes of a key that a replica has in its memory; a text says why nothing. */
const changesOfKeys: Readonly<Record<keyof ApiKeyRepository["Service"], ReadonlyArray<Change> | string>> = {
  insertForProject: "A key that is not known is looked up.",
  insertForOrg: "A key that is not known is looked up.",
  importKeys: [
    change(
      ({ orgId }) =>
        Effect.flatMap(newKey(), (key) =>
          keys((all) => all.importKeys(orgId, [{ ...key, projectId: null, importStart: null }], false, newEntry())),
        ),
      () => "imported",
    ),
  ],
  findImported: "It reads.",
  settleImported: "The key stays as valid as it was.",
  remove: [change(({ id, orgId }) => keys((all) => all.remove(orgId, id, newEntry())))],
  update: [
    change(({ id, orgId }) => keys((all) => all.update(orgId, id, { enabled: false }, newEntry()))),
    change(({ id, orgId }) => keys((all) => all.update(orgId, id, { permissions: ["a"] }, newEntry()))),
    change(({ id, orgId }) => keys((all) => all.update(orgId, id, { allowedIps: ["203.0.113.7"] }, newEntry()))),
    change(({ id, orgId }) => keys((all) => all.update(orgId, id, { expiresAt: at(60) }, newEntry()))),
  ],
  disableLeaked: [change(({ hash }) => keys((all) => all.disableLeaked(hash, () => Effect.succeed(newEntry()))))],
  // With and without a time in which both are valid.
  rotate: [rotate(10), rotate(3_600)],
  list: "It reads.",
  find: "It reads.",
  findByHashes: "It reads.",
  touch: "When a key was used decides nothing.",
}

const putRole = (orgId: string) =>
  RoleRepository.use((roles) => roles.put(orgId, { name: "r", permissions: ["a"] }, newEntry({ target: orgId })))
const toldOfRoles = ({ orgId }: Made) => `roles:${orgId}`

/** What each method of the repository changes of the roles that a replica knows of a key. */
const changesOfRoles: Readonly<Record<keyof RoleRepository["Service"], ReadonlyArray<Change> | string>> = {
  list: "It reads.",
  put: [change(({ orgId }) => putRole(orgId), toldOfRoles)],
  remove: [
    change(
      ({ orgId }) =>
        Effect.andThen(
          putRole(orgId),
          RoleRepository.use((roles) => roles.remove(orgId, "r", newEntry({ target: orgId }))),
        ),
      (made) => [toldOfRoles(made), toldOfRoles(made)],
    ),
  ],
  firstMissing: "It reads.",
}

const ofOwners = [
  change(
    ({ orgId }) => OrgRepository.use((orgs) => orgs.remove(orgId, at(1), newEntry())),
    ({ orgId }) => `org:${orgId}`,
  ),
  change(
    ({ projectId }) => ProjectRepository.use((projects) => projects.remove(everyOrg, projectId, at(1), newEntry())),
    ({ orgId, projectId }) => `project:${orgId}:${projectId}`,
  ),
]

layer(Layer.provideMerge(repositories, databases.postgres))("what replicas are told of keys", (it) => {
  // Seen failing when a rotation told only of an old key that ends at once, and when the removal of a role told nobody.
  it.effect("every change of a key that a replica may have in its memory, with the change", function* () {
    const next = yield* heard(revocationChannel)
    assert.strictEqual(yield* next, "Up")
    const changes = [
      ...[...Object.values(changesOfKeys), ...Object.values(changesOfRoles)].flatMap((one) =>
        typeof one === "string" ? [] : one,
      ),
      ...ofOwners,
    ]
    for (const { run, told } of changes) {
      const made = yield* insertAll
      yield* run(made)
      for (const message of [told(made)].flat()) {
        assert.strictEqual(yield* within("what replicas are told", next), message)
      }
    }
  })
})
