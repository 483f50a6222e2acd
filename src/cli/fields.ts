import { orgLimitNames } from "../domain/orgs/OrgLimits.ts"

/** The flag or argument of the command line, by the API field that it sets. */
const flagNames = new Map([
  ["cron", "the cron expression"],
  ["cursor", "--cursor"],
  ["delivery_id", "the delivery's id"],
  ["description", "--description"],
  ["environment", "--environment"],
  ["error", "--error"],
  ["expiresAt", "--expires-at"],
  ["hostOwner", "the repository's owner"],
  ["hostRepo", "the repository's name"],
  ["id", "the id"],
  ["input", "--input"],
  ["job_id", "the job's id"],
  ["key", "the key"],
  ["limit", "--limit"],
  ...orgLimitNames.map((name) => [`limits.${name}`, `--limit ${name}`] as const),
  ["max_attempts", "--max-attempts"],
  ["name", "the name"],
  ["orgId", "--org"],
  ["overlapSeconds", "--overlap"],
  ["owners", "--owners"],
  ["priority", "--priority"],
  ["projectId", "--project"],
  ["provider", "--provider"],
  ["rateLimit.limit", "--rate-limit"],
  ["rateLimit.window", "--window"],
  ["result", "--result"],
  ["run_at", "--run-at"],
  ["schedule_id", "the schedule's id"],
  ["signing_secret", "the signing secret"],
  ["timezone", "--timezone"],
  ["url", "the endpoint's url"],
  ["webhook_endpoint_id", "the endpoint's id"],
  ["workflow", "the workflow"],
])

/**
 * Replaces the API fields in a sentence (`limit must be …; name must be …`) with the flags and arguments that set them.
 */
export const inFlags = (sentence: string): string =>
  sentence
    .split("; ")
    .map((fault) => fault.replace(/^[\w.]*\w/, (field) => flagNames.get(field) ?? field))
    .join("; ")
