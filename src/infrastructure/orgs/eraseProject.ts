import { Effect } from "effect"
import { texts } from "../database/arrays.ts"
import { eraseDocs } from "../docs/eraseDocs.ts"
import { byId, type Erasure, erased, eraseOfKeys, type NamedStep, type Sql, type Step } from "./erasureSteps.ts"
import { subtractStoredBytes } from "./storedBytes.ts"

/** Erases the next hours of usage of keys; returns how many. A key can have more hours than a batch has rows. */
const eraseUsage = (sql: Sql, { orgId }: Erasure, ids: ReadonlyArray<string>, limit: number) =>
  Effect.map(
    sql`
      DELETE FROM key_usage WHERE org_id = ${orgId} AND ctid = ANY(ARRAY(
        SELECT ctid FROM key_usage WHERE org_id = ${orgId} AND key_id = ANY(${texts(ids)}) LIMIT ${limit}
      )) RETURNING 1`,
    (rows) => rows.length,
  )

/** Erases the keys of a project: they are found among all keys of its org. */
const projectKeys: Step = (sql, { orgId, projectId }, after, limit) =>
  Effect.gen(function* () {
    const keys = yield* sql<{ id: string; isOwn: boolean }>`
      SELECT id, coalesce(project_id = ${projectId}, false) AS "isOwn" FROM api_keys
      WHERE org_id = ${orgId} AND id > ${after} ORDER BY id LIMIT ${limit}`
    const own = keys.filter(({ isOwn }) => isOwn).map(({ id }) => id)
    if (own.length > 0) {
      const used = yield* eraseUsage(sql, { orgId, projectId }, own, limit)
      // The keys stay until all their hours are erased, so that the next batch finds them.
      if (used === limit) return { rows: used, last: after }
      yield* eraseOfKeys(sql, { orgId, projectId }, own)
      yield* byId(sql, "api_keys", { orgId, projectId }, own)
    }
    return { rows: own.length, last: keys.length === limit ? keys.at(-1)!.id : null }
  })

const projectDeployments: Step = (sql, { orgId, projectId }, after, limit) =>
  Effect.map(
    sql<{ id: string }>`
      DELETE FROM deployments WHERE org_id = ${orgId} AND id = ANY(ARRAY(
        SELECT id FROM deployments WHERE project_id = ${projectId} AND id > ${after} ORDER BY id LIMIT ${limit}
      )) RETURNING id`,
    (rows) => erased(rows.map(({ id }) => id).toSorted(), limit),
  )

const projectDocs: Step = (sql, { orgId, projectId }, _, limit) =>
  Effect.gen(function* () {
    const { bytes, rows } = yield* eraseDocs(sql, { orgId, projectId: projectId! }, limit)
    if (bytes > 0) yield* subtractStoredBytes(sql, new Map([[orgId, bytes]]))
    return { rows, last: rows < limit ? null : "" }
  })

/** The steps of a project's erasure. */
export const projectSteps: ReadonlyArray<NamedStep> = [
  ["docs", projectDocs],
  ["keys", projectKeys],
  ["deployments", projectDeployments],
]
