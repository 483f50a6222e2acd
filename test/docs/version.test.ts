import { assert, it } from "@effect/vitest"
import { readFileSync } from "node:fs"
import { version } from "#src/domain/version.ts"

const textOf = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8")

const packages = ["client", "gateway", "webhooks", "worker"].map((name) => `packages/${name}/package.json`)

/** Where the version stands, and what comes before it. */
const places: ReadonlyArray<readonly [path: string, before: string]> = [
  ...["package.json", "package-lock.json", ...packages].map((path) => [path, '"version": "'] as const),
  ["packages/worker-python/pyproject.toml", 'version = "'],
  ["deploy/helm/gatehouse/Chart.yaml", "version: "],
  ["deploy/helm/gatehouse/Chart.yaml", "appVersion: "],
  ["deploy/kubernetes.yaml", "registry.example.com/gatehouse:"],
  ["docs/deploying.md", "GitHub release `v"],
  ["docs/packages.md", "gatehouse-webhooks-"],
  ["docs/webhooks.md", "user-agent: Gatehouse/"],
  ["CHANGELOG.md", "## "],
]

// Seen failing with the version of a chart that was not raised.
it.each(places)("%s has the version after %s", (path, before) => {
  const text = textOf(path)
  const found = text.slice(text.indexOf(before) + before.length)
  assert.isTrue(text.includes(before) && found.startsWith(version), `${path}: ${before}${found.slice(0, 20)}`)
})
