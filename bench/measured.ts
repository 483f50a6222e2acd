/** The source that every request and every statement runs. */
const served = ["src/http/server", "src/infrastructure/database"]
const keys = ["src/domain/keys", "src/infrastructure/keys"]
const webhooks = [
  "src/domain/webhooks",
  "src/infrastructure/webhooks",
  "src/infrastructure/net",
  "src/infrastructure/crypto",
]
const jobs = ["src/domain/jobs", "src/infrastructure/jobs"]
const documentation = [
  "src/domain/docs",
  "src/domain/docs",
  "src/infrastructure/docs",
  "src/infrastructure/docs",
  "bench/questions",
]
const managed = [
  ...["src/http/api", "src/http/handlers", "src/infrastructure/idempotency", "src/infrastructure/oidc"],
  ...["audit", "deployments", "orgs", "projects"].flatMap((one) => [`src/domain/${one}`, `src/infrastructure/${one}`]),
]

/**
 * The scenarios in the order of their sections in docs/performance.md, each with the source that its figures measure. A
 * section is older than the code when a commit after its own has changed one of these folders or files.
 */
export const measured: Readonly<Record<string, ReadonlyArray<string>>> = {
  validate: [...served, ...keys],
  operations: [...served, ...managed, ...keys, "src/domain/webhooks", "src/infrastructure/webhooks"],
  deliveries: ["src/infrastructure/database", ...webhooks],
  latency: [...served, ...webhooks, ...jobs],
  publish: [...served, ...webhooks, ...jobs],
  growth: [...served, ...managed, ...keys, ...webhooks, "src/boot"],
  abuse: [...served, ...managed, ...keys, ...webhooks, ...jobs, ...documentation],
  bounded: [...served, ...webhooks, ...jobs, "src/domain/sweeps", "src/infrastructure/sweeps"],
  gateway: [...served, ...keys],
  chat: documentation,
  pressure: [...served, ...webhooks, ...jobs],
  console: [...served, "src/domain/activity", "src/infrastructure/activity"],
}
