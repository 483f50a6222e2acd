import { Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { Project } from "../../domain/projects/Project.ts"
import { decodePage, decodeRows, Time } from "../database/fragments.ts"

export const ProjectRow = Schema.Struct({
  ...Project.fields,
  createdAt: Time,
  updatedAt: Time,
})
export const decodeProjects = decodeRows(ProjectRow)
export const decodeProjectPage = decodePage(ProjectRow)

/** The columns of a project, with its org as "orgId". */
export const projectColumns = (sql: SqlClient.SqlClient) =>
  sql.literal(`
    id AS "projectId", org_id AS "orgId", name, subdomain, current_deployment_id AS "currentDeploymentId",
    default_branch AS "defaultBranch", host_owner AS "hostOwner", host_repo AS "hostRepo",
    created_at AS "createdAt", updated_at AS "updatedAt"`)
