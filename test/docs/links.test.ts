import { expect } from "@effect/vitest"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import * as Errors from "#src/domain/Errors.ts"
import { it } from "../support/it.ts"
import { faultOfCommand, ofNode, variables } from "./commands.ts"
import { pages, proseOf, repository } from "./pages.ts"
import { operationOf } from "./requests.ts"

/** The anchors of a page's headings, as GitHub creates them. */
const anchorsOf = (path: string) =>
  [...readFileSync(repository + path, "utf8").matchAll(/^#+ (.*)$/gm)].map(([, heading]) =>
    heading!
      .replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1")
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}\p{M}\s_-]/gu, "")
      .replaceAll(" ", "-"),
  )

// Seen failing with a missing page and a missing heading.
it.each(pages)("$path: every link inside the repository leads to an existing file and heading", (page) => {
  const links = [...proseOf(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target!)
  for (const link of links.filter((target) => !/^https?:/.test(target))) {
    const [file, anchor] = link.split("#")
    const path = file === "" ? page.path : join(page.path, "..", file!)
    expect(existsSync(repository + path), link).toBe(true)
    expect(anchor === undefined || anchorsOf(path).includes(anchor), link).toBe(true)
  }
})

it.each(["docs/adr/", "docs/"])("the index of %s has every page once", (folder) => {
  const index = pages.find(({ path }) => path === `${folder}README.md`)!.text
  const isHere = (path: string) =>
    path.startsWith(folder) && (folder === "docs/adr/" || !/^docs\/adr\/\d/.test(path)) && path !== `${folder}README.md`
  for (const { path } of pages.filter(({ path }) => isHere(path))) {
    expect(index.split(`](${path.slice(folder.length)})`), path).toHaveLength(2)
  }
})

const folders = ["src", "test", "bench", "docs", "deploy", "examples", "scripts"]
/** Every file of the project, with a leading slash. */
const files = folders.flatMap((folder) =>
  readdirSync(repository + folder, { recursive: true, encoding: "utf8" })
    .filter((path) => !path.includes("node_modules"))
    .map((path) => `/${folder}/${path}`),
)

it("every named source file exists", () => {
  for (const page of pages) {
    const named = [...proseOf(page).matchAll(/`([\w/.-]+\.ts)`/g)].map(([, path]) => path!)
    const missing = named.filter((path) => !files.some((file) => file.endsWith(`/${path}`)))
    expect(missing, page.path).toEqual([])
  }
})

/** Variables of the tests and of templates, each with the file that reads or sets it. */
const ofTests: Readonly<Record<string, string>> = {
  GATEHOUSE_PREVIEW: "deploy/gitlab/register.yml",
  GATEHOUSE_PROJECT_ID: "deploy/gitlab/register.yml",
  ABUSE_RUNS: "test/http/abuse/generated.test.ts",
  ABUSE_SEED: "test/http/abuse/generated.test.ts",
  CHROMIUM_PATH: "test/support/browser.ts",
  EVENTS: "test/faults/retention.test.ts",
  ORDERED: "test/faults/ownEvents.test.ts",
  UPDATE_LAYOUTS: "test/console/layout.test.ts",
  BACKUP_KEEP: "deploy/compose.yaml",
  NPM_TOKEN: ".github/workflows/publish.yaml",
  UPDATE_ROLES: "test/http/sessions/roles.test.ts",
  CONSOLE_MINUTES: "test/faults/console.test.ts",
  RACES: "test/faults/races.test.ts",
  PAIRS: "test/faults/pairs.test.ts",
  PAIRS_SEED: "test/faults/pairs.test.ts",
  LOCKS: "test/sim/locks.test.ts",
  LOCKS_SEED: "test/sim/locks.test.ts",
  SCHEMATHESIS_SEED: "test/schemathesis/schemathesis.test.ts",
  WORKER_JOBS: "test/sdk/worker.test.ts",
  TEST_DATABASE_URL: "test/support/postgres.ts",
  TEST_SLOWNESS: "vitest.config.ts",
  TEST_SERVERS: "test/support/server.ts",
}

/** Variables of the user, which the command line reads: src/cli/connection.ts, src/cli/output.ts. */
const ofUsers = ["XDG_CONFIG_HOME", "NO_COLOR"]

it("something reads every named environment variable", () => {
  for (const page of pages) {
    const named = [...proseOf(page).matchAll(/`([A-Z]+(?:_[A-Z]+)+|[A-Z]+(?==))/g)].map(([, name]) => name!)
    expect(
      named.filter(
        (name) => !variables.includes(name) && ![...ofNode, ...ofUsers].includes(name) && !(name in ofTests),
      ),
      page.path,
    ).toEqual([])
  }
  for (const [name, path] of Object.entries(ofTests)) {
    expect(readFileSync(repository + path, "utf8"), path).toContain(name)
  }
})

/** What the other services of docs/migrate-from have, and pages that are no operations. */
const ofOthers = /^\/v2\/|^\/(?:metrics|healthz|readyz|docs|console|openapi\.json)\b/

it("every named operation exists", () => {
  for (const page of pages) {
    const named = [...proseOf(page).matchAll(/`(GET|POST|PUT|PATCH|DELETE) (\/[^` ?]*)[^`]*`/g)]
    const missing = named.filter(
      ([, method, path]) => !ofOthers.test(path!) && operationOf(method!, path!) === undefined,
    )
    expect(
      missing.map(([text]) => text),
      page.path,
    ).toEqual([])
  }
})

interface ErrorClass {
  readonly ast?: { readonly annotations?: { readonly httpApiStatus?: number } }
  readonly fields?: { readonly code?: { readonly ast: { readonly literal?: string } } }
}

it("every code of an error is named with its own status", () => {
  const statuses = new Map(
    (Object.values(Errors) as ReadonlyArray<ErrorClass>).map(({ ast, fields }) => [
      fields?.code?.ast.literal,
      ast?.annotations?.httpApiStatus,
    ]),
  )
  expect(statuses.get("not_found")).toBe(404)
  for (const page of pages) {
    const named = [...proseOf(page).matchAll(/\b([45]\d\d) `([a-z_]+)`/g)]
    expect(
      named.filter(([, status, code]) => statuses.get(code) !== Number(status)),
      page.path,
    ).toEqual([])
  }
})

it.effect("every named command of gatehouse exists", function* () {
  for (const page of pages) {
    for (const [, words] of proseOf(page).matchAll(/`gatehouse ([a-z][^`]*)`/g)) {
      const fault = yield* faultOfCommand(words!.split(" "))
      // Prose names a command without its arguments.
      if (fault !== undefined && !/Missing/.test(fault)) expect(fault, page.path).toBeUndefined()
    }
  }
})
