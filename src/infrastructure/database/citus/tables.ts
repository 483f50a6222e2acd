/**
 * The tables of tenants, which lie in buckets. `test/infrastructure/database/citus` compares both lists with the catalog, so
 * that a new table is in one of them.
 */
export const tenantTables = [
  "webhook_endpoints",
  "org_signing_keys",
  "endpoint_paces",
  "jobs",
  "job_schedules",
  "events",
  "deliveries",
  "delivery_attempts",
  "pending_deliveries",
  "failing_callbacks",
  "sweeps",
  "org_usage",
] as const

/**
 * The tables of the platform, which lie in the schema `public` of the coordinator. Their names in a bucket are empty tables,
 * so that a migration is the same everywhere; but for `orgs`, which has a copy of the orgs of the bucket with their limits, and
 * `audit_log`, which has the entries of changes in the bucket.
 */
export const platformTables = [
  "gatehouse_migrations",
  "orgs",
  "org_owners",
  "projects",
  "api_keys",
  "key_counters",
  "key_usage",
  "deployments",
  "project_docs",
  "docs_pages",
  "docs_questions",
  "idempotency_keys",
  "audit_log",
  "sessions",
  "activity_counts",
  "endpoint_failures",
  "replicas",
] as const
