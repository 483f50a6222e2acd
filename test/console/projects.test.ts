import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { adminToken, TestServer } from "../support/server.ts"
import { inTab, signedInTab, withConsoles } from "./support.ts"
import { call, consolesWithCi, createOrg, pullRequest, repositoryOf } from "./world.ts"

withConsoles("projects", consolesWithCi, (it) => {
  it.effect(
    "deployments are a timeline that grows as CI registers, and changes as others make one current",
    function* () {
      const orgId = yield* createOrg("Acme")
      const run = yield* repositoryOf(orgId)
      const { projectId } = yield* run("100", { sha: "a".repeat(40) })
      yield* run("101", { sha: "b".repeat(40), actor: "grace" })
      const path = `/orgs/${orgId}/projects/${projectId}`
      const { page } = yield* signedInTab(path)
      const current = page.getByRole("listitem").filter({ has: page.getByText("Current", { exact: true }) })
      yield* Effect.promise(async () => {
        await expect.poll(() => current.textContent()).toContain("bbbbbbb")
        await expect.poll(() => current.textContent()).toContain("by grace")
      })
      yield* run("102", { sha: "c".repeat(40), ...pullRequest("add-search") })
      yield* Effect.promise(async () => {
        // A live event brings the new one.
        const preview = page.getByRole("listitem").filter({ hasText: "Preview" })
        await expect.poll(() => preview.textContent()).toContain("pull request #7")

        await page.getByRole("button", { name: "Make current: main at aaaaaaa" }).click()
        await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click()
        await page.getByRole("dialog").waitFor({ state: "detached" })
      })
      const { deployments: all } = yield* call("GET", `/api/v0/projects/${projectId}/deployments`)
      const first = (all as unknown as ReadonlyArray<{ readonly id: string; readonly sha: string }>).find(
        ({ sha }) => sha === "a".repeat(40),
      )!
      // Somebody else goes back: the open timeline shows it by a live event.
      yield* call("POST", `/api/v0/projects/${projectId}/deployments/${first.id}/promote`)
      yield* Effect.promise(async () => {
        await current.filter({ hasText: "aaaaaaa" }).waitFor()
        await page.getByLabel("Kind").selectOption("Previews")
        await page.waitForURL((url) => url.search === "?kind=preview")
        await page.getByText("aaaaaaa").waitFor({ state: "detached" })
        await page.reload()
        await page.getByText("add-search").waitFor()
        await page.getByLabel("Branch or tag").fill("nothing")
        await page.getByText("No deployment is like that").waitFor()
      })
    },
  )

  it.effect("what somebody else changes appears in a form, and leaves what is typed there", function* () {
    const orgId = yield* createOrg("Acme")
    const { projectId } = yield* call("POST", "/api/v0/projects", { orgId, name: "docs" })
    const { page } = yield* signedInTab(`/orgs/${orgId}/projects/${projectId}/settings`)
    const branch = page.getByLabel("Default branch")
    yield* Effect.promise(() => branch.fill("trunk"))
    yield* call("PATCH", `/api/v0/projects/${projectId}`, { subdomain: "by-another" })
    yield* Effect.promise(async () => {
      await page.getByRole("textbox", { name: "Owner" }).fill("acme")
      await page.getByRole("textbox", { name: "Repository" }).fill("handbook")
      // Reads the page again.
      await page.getByRole("button", { name: "Link", exact: true }).click()
      await expect.poll(() => page.getByLabel("Subdomain").inputValue()).toBe("by-another")
      await expect.poll(() => branch.inputValue()).toBe("trunk")
      await page.getByRole("button", { name: "Save", exact: true }).click()
      await page.getByRole("status").getByText("The project is saved.").waitFor()
      await expect.poll(() => page.getByRole("button", { name: "Save", exact: true }).isDisabled()).toBe(true)
    })
    const stored = yield* call("GET", `/api/v0/projects/${projectId}`)
    expect(stored).toMatchObject({ defaultBranch: "trunk", subdomain: "by-another" })
  })

  it.effect("a project with spaces in its name is deleted by what the page shows", function* () {
    const orgId = yield* createOrg("Acme")
    const { projectId } = yield* call("POST", "/api/v0/projects", { orgId, name: "my  docs" })
    yield* inTab(`/orgs/${orgId}/projects/${projectId}/settings`, async (page, at) => {
      await page.getByRole("button", { name: "Delete project" }).click()
      await page.getByLabel("Type my docs to confirm").fill("my docs")
      await page.getByRole("dialog").getByRole("button", { name: "Delete project" }).click()
      await page.waitForURL(at(`/orgs/${orgId}/projects`))
    })
  })

  it.effect("each of many projects can have a key, and more that do not come say why", function* () {
    const orgId = yield* createOrg("Acme")
    const { sql } = yield* TestServer
    yield* sql`
      INSERT INTO projects (id, org_id, name, created_at, updated_at)
      SELECT '01M8H3SDWJEA5AK5F8RZ' || lpad(n::text, 6, '0'), ${orgId}, 'project ' || n, now(), now()
      FROM generate_series(1, 250) n`
    yield* inTab(`/orgs/${orgId}/keys?new`, async (page, at) => {
      await page
        .getByLabel("Belongs to")
        .locator("option", { hasText: "Project project 250" })
        .waitFor({ state: "attached" })
      await page.goto(at(`/orgs/${orgId}/projects`))
      const more = page.getByRole("button", { name: "Show more" })
      await more.waitFor()
      const json = { error: "The database is not available.", code: "unavailable" }
      await page.route("**/api/v0/projects?*", (route) => route.fulfill({ status: 503, json }))
      await more.click()
      await page.getByRole("alert").getByText("The database is not available.").waitFor()
      await page.unroute("**/api/v0/projects?*")
      await more.click()
      await page.getByRole("link", { name: "project 60" }).waitFor()
      await expect.poll(() => page.getByRole("alert").count()).toBe(0)
    })
    yield* sql`DELETE FROM projects WHERE org_id = ${orgId}`
  })

  it.effect("a project is created, named, linked with a pin, unlinked and deleted", function* () {
    const orgId = yield* createOrg("Acme")
    let projectId = ""
    yield* inTab(`/orgs/${orgId}/projects`, async (page) => {
      await page.getByText("This org has no project yet").waitFor()
      await page.getByRole("button", { name: "Create project" }).click()
      await page.getByLabel("Name").fill("docs")
      await page.getByRole("dialog").getByRole("button", { name: "Create project" }).click()
      await page.getByText("Nothing was deployed yet").waitFor()
      projectId = new URL(page.url()).pathname.split("/").at(-1)!

      await page.getByRole("navigation", { name: "Project" }).getByRole("link", { name: "Settings" }).click()
      await page.getByLabel("Default branch").fill("trunk")
      await page.getByLabel("Subdomain").fill("docs-acme")
      await page.getByRole("button", { name: "Save", exact: true }).click()
      await page.getByRole("status").getByText("The project is saved.").waitFor()
      await page.getByRole("textbox", { name: "Owner" }).fill("acme")
      await page.getByRole("textbox", { name: "Repository" }).fill("docs")
      await page.getByLabel("Only this environment").fill("production")
      await page.getByRole("button", { name: "Link", exact: true }).click()
      await page.getByRole("button", { name: "Unlink the repository" }).waitFor()
    })
    expect(yield* call("GET", `/api/v0/projects/${projectId}/link`)).toEqual({
      provider: "github",
      hostOwner: "acme",
      hostRepo: "docs",
      workflow: null,
      environment: "production",
    })
    expect(yield* call("GET", `/api/v0/projects/${projectId}`)).toMatchObject({
      defaultBranch: "trunk",
      subdomain: "docs-acme",
    })
    yield* inTab(`/orgs/${orgId}/projects/${projectId}/settings`, async (page, at) => {
      await page.getByRole("button", { name: "Unlink the repository" }).click()
      await page.getByRole("button", { name: "Unlink", exact: true }).click()
      await page.getByRole("button", { name: "Link", exact: true }).waitFor()
      await page.getByRole("button", { name: "Delete project" }).click()
      await page.getByLabel("Type docs to confirm").fill("docs")
      await page.getByRole("dialog").getByRole("button", { name: "Delete project" }).click()
      await page.waitForURL(at(`/orgs/${orgId}/projects`))
      await page.getByText("This org has no project yet").waitFor()
    })
    const { send } = yield* TestServer
    expect((yield* send("GET", `/api/v0/projects/${projectId}`, { as: adminToken })).status).toBe(404)
  })
})
