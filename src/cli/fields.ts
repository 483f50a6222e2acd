import { orgLimitNames } from "../domain/orgs/OrgLimits.ts"

/** What a person gives on the command line, by the field of the interface that it becomes. */
const names = new Map([
  ["cursor", "--cursor"],
  ["delivery_id", "the delivery's id"],
  ["description", "--description"],
  ["error", "--error"],
  ["expiresAt", "--expires-at"],
  ["id", "the id"],
  ["input", "--input"],
  ["job_id", "the job's id"],
  ["key", "the key"],
  ["limit", "--limit"],
  ...orgLimitNames.map((name) => [`limits.${name}`, `--limit ${name}`] as const),
  ["name", "the name"],
  ["orgId", "--org"],
  ["overlapSeconds", "--overlap"],
  ["projectId", "--project"],
  ["rateLimit.limit", "--rate-limit"],
  ["rateLimit.window", "--window"],
  ["result", "--result"],
  ["signing_secret", "the signing secret"],
  ["url", "the endpoint's url"],
  ["webhook_endpoint_id", "the endpoint's id"],
  ["workflow", "the workflow"],
])

/**
 * A sentence about a request's fields (`limit must be …; name must be …`) in the words of the command line: its flags, and
 * what its arguments are.
 */
export const inFlags = (sentence: string): string =>
  sentence
    .split("; ")
    .map((fault) => fault.replace(/^[\w.]*\w/, (field) => names.get(field) ?? field))
    .join("; ")
