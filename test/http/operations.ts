import { Effect, Schema } from "effect"
import {
  ApiKey,
  CreatedApiKey,
  CreateOrgKey,
  CreateProjectKey,
  RotateKey,
  UpdateKey,
  ValidatedKey,
  ValidateKey,
} from "#src/domain/keys/ApiKey.ts"
import { UsageInterval } from "#src/domain/keys/KeyUsage.ts"
import { AuditEntry } from "#src/domain/audit/AuditEntry.ts"
import { Deployment, Registration } from "#src/domain/deployments/Deployment.ts"
import { CreateOrg, Org, OrgDetail, UpdateOrg } from "#src/domain/orgs/Org.ts"
import { CreateProject, Project, UpdateProject } from "#src/domain/projects/Project.ts"
import type { Send, WireAnswer } from "../support/wire.ts"

/** An operation of the platform interface, with its name in the documents. */
export interface Operation {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE"
  /** With `{orgId}`, `{projectId}`, `{id}` in place of ids. */
  readonly path: string
  /** The schemas of its request and its answer. */
  readonly request?: Schema.Codec<unknown, unknown> | undefined
  /** Whether the body may be missing. */
  readonly mayBeEmpty?: boolean
  readonly response: Schema.Codec<unknown, unknown>
  /** The statuses of its errors. */
  readonly errors: ReadonlyArray<number>
}

const page = (name: string, item: Schema.Codec<unknown, unknown>) =>
  Schema.Struct({ [name]: Schema.Array(item), nextCursor: Schema.NullOr(Schema.String) }) as Schema.Codec<
    unknown,
    unknown
  >

const platform = "/api/v0"

/** Operations under /api/v0, written down here and not read from the definition under test. */
export const operations = {
  createProjectKey: {
    method: "POST",
    path: `${platform}/keys`,
    request: CreateProjectKey,
    response: CreatedApiKey,
    errors: [400, 401, 403, 404, 409, 413, 415, 422],
  },
  createOrgKey: {
    method: "POST",
    path: `${platform}/orgs/{orgId}/keys`,
    request: CreateOrgKey,
    response: CreatedApiKey,
    errors: [400, 401, 403, 404, 409, 413, 415, 422],
  },
  listKeys: {
    method: "GET",
    path: `${platform}/orgs/{orgId}/keys`,
    response: page("keys", ApiKey),
    errors: [400, 401, 403, 404],
  },
  getKey: {
    method: "GET",
    path: `${platform}/orgs/{orgId}/keys/{id}`,
    response: ApiKey,
    errors: [400, 401, 403, 404],
  },
  deleteKey: {
    method: "DELETE",
    path: `${platform}/orgs/{orgId}/keys/{id}`,
    response: Schema.Struct({ deleted: Schema.Boolean }),
    errors: [400, 401, 403, 404],
  },
  rotateKey: {
    method: "POST",
    path: `${platform}/orgs/{orgId}/keys/{id}/rotate`,
    request: RotateKey,
    response: CreatedApiKey,
    errors: [400, 401, 403, 404, 409, 413, 415, 422],
  },
  validateKey: {
    method: "POST",
    path: `${platform}/keys/validate`,
    request: ValidateKey,
    response: ValidatedKey,
    errors: [400, 401, 403, 413, 415, 429],
  },
  updateKey: {
    method: "PATCH",
    path: `${platform}/orgs/{orgId}/keys/{id}`,
    request: UpdateKey,
    response: ApiKey,
    errors: [400, 401, 403, 404, 409, 413, 415],
  },
  keyUsage: {
    method: "GET",
    path: `${platform}/orgs/{orgId}/keys/{id}/usage`,
    response: Schema.Struct({ usage: Schema.Array(UsageInterval) }),
    errors: [400, 401, 403, 404],
  },
  orgUsage: {
    method: "GET",
    path: `${platform}/orgs/{orgId}/usage`,
    response: Schema.Struct({ usage: Schema.Array(UsageInterval) }),
    errors: [400, 401, 403, 404],
  },
  listAudit: {
    method: "GET",
    path: `${platform}/orgs/{orgId}/audit`,
    response: page("entries", AuditEntry),
    errors: [400, 401, 403, 404],
  },
  createOrg: {
    method: "POST",
    path: `${platform}/orgs`,
    request: CreateOrg,
    response: Org,
    errors: [400, 401, 403, 409, 413, 415, 422],
  },
  listOrgs: { method: "GET", path: `${platform}/orgs`, response: page("orgs", Org), errors: [400, 401, 403] },
  getOrg: { method: "GET", path: `${platform}/orgs/{orgId}`, response: OrgDetail, errors: [400, 401, 403, 404] },
  updateOrg: {
    method: "PATCH",
    path: `${platform}/orgs/{orgId}`,
    request: UpdateOrg,
    response: OrgDetail,
    errors: [400, 401, 403, 404, 409, 413, 415],
  },
  createProject: {
    method: "POST",
    path: `${platform}/projects`,
    request: CreateProject,
    response: Project,
    errors: [400, 401, 403, 404, 409, 413, 415, 422],
  },
  listProjects: {
    method: "GET",
    path: `${platform}/projects`,
    response: page("projects", Project),
    errors: [400, 401, 403, 404],
  },
  getProject: {
    method: "GET",
    path: `${platform}/projects/{projectId}`,
    response: Project,
    errors: [400, 401, 403, 404],
  },
  updateProject: {
    method: "PATCH",
    path: `${platform}/projects/{projectId}`,
    request: UpdateProject,
    response: Project,
    errors: [400, 401, 403, 404, 409, 413, 415],
  },
  listDeployments: {
    method: "GET",
    path: `${platform}/projects/{projectId}/deployments`,
    response: page("deployments", Deployment),
    errors: [400, 401, 403, 404],
  },
  register: {
    method: "POST",
    path: `${platform}/register-deployment`,
    request: Schema.Record(Schema.String, Schema.Unknown) as Schema.Codec<unknown, unknown>,
    response: Registration,
    errors: [400, 401, 409, 413, 415],
  },
} satisfies Record<string, Operation>
export type OperationName = keyof typeof operations

/** The path with its ids. */
export const pathOf = (operation: Operation, ids: Readonly<Record<string, string>>) =>
  operation.path.replace(/\{(\w+)\}/g, (_, name: string) => ids[name]!)

/** A valid body of each operation; `ids` are those of existing resources. */
export const bodyOf = (name: OperationName, ids: Readonly<Record<string, string>>): object | undefined =>
  (
    {
      createProjectKey: { name: "ci", projectId: ids["projectId"] },
      createOrgKey: { name: "gateway" },
      rotateKey: {},
      updateKey: { name: "gateway" },
      validateKey: { key: ids["key"] },
      createOrg: { name: "Acme" },
      updateOrg: { name: "Acme" },
      createProject: { name: "docs" },
      updateProject: { name: "docs" },
      register: {},
    } as Partial<Record<OperationName, object>>
  )[name]

/** Sends a request that must succeed; returns the fields of its answer. */
export const must = Effect.fnUntraced(function* (send: Send, ...request: Parameters<Send>) {
  const answer = yield* send(...request)
  if (answer.status !== 200) {
    return yield* Effect.die(new Error(`${request[0]} ${request[1]}: ${answer.status} ${answer.text}`))
  }
  return answer.json as Readonly<Record<string, string>>
})

const sorted = (value: unknown) => (typeof value === "object" && value !== null ? Object.keys(value).sort() : value)

/** The fault of an error answer of the platform interface; undefined when it is as documented. */
export const faultOfError = ({ status, json, headers }: WireAnswer): string | undefined => {
  if (headers["content-type"] !== "application/json") return `content-type is ${headers["content-type"]}`
  if (String(sorted(json)) !== "code,error") return `the fields are ${String(sorted(json))}`
  const { error, code } = json as Record<string, unknown>
  if (typeof error !== "string" || !/^\S.*\S[.?]$/s.test(error)) return `"${String(error)}" is no sentence`
  if (typeof code !== "string" || !/^[a-z]+(_[a-z]+)*$/.test(code)) return `"${String(code)}" is no code`
  return codes[status] === code ||
    (status === 422 && code === "idempotency_key_reused") ||
    (status === 409 && code === "limit_reached")
    ? undefined
    : `${status} has the code ${code}`
}

const codes: Record<number, string> = {
  400: "invalid_request",
  401: "unauthorized",
  403: "forbidden",
  404: "not_found",
  405: "method_not_allowed",
  409: "conflict",
  413: "payload_too_large",
  415: "unsupported_media_type",
  422: "unprocessable",
  429: "too_many_requests",
  500: "internal_error",
  503: "unavailable",
}

export const keysOf = sorted
