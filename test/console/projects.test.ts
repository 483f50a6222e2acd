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
