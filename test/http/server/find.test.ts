import { expect } from "@effect/vitest"
import { layer } from "../../support/it.ts"
import { TestServer } from "../../support/server.ts"
import { must } from "../operations.ts"
import { makeTenant } from "../tenants.ts"

layer(TestServer.layer({}), { excludeTestServices: true })("find", (it) => {
  it.effect(
    "finds each kind of thing by its texts, newest first, and an endpoint without a description by its URL",
    function* () {
      const { send } = yield* TestServer
      const { call, endpoint, orgId } = yield* makeTenant()
      const first = yield* endpoint("https://puffin.example/one")
      const second = yield* endpoint("https://localhost:9/", { description: "Puffin two" })
      const { schedule_id } = yield* call("schedules/create", {
        workflow: "puffin-3",
        cron: "0 0 1 1 *",
        timezone: "UTC",
      })
      const { projectId } = yield* must(send, "POST", "/api/v0/projects", {
        json: { name: "Puffin four", orgId },
      })
      const { id } = yield* must(send, "POST", `/api/v0/orgs/${orgId}/keys`, {
        json: { name: "k", externalId: "puffin-5" },
      })
      const { found } = (yield* must(send, "GET", "/api/v0/find?text=puffin")) as unknown as {
        readonly found: ReadonlyArray<Record<string, unknown>>
      }
      expect(found.map(({ id, kind, name }) => [kind, id, name])).toEqual([
        ["key", id, "k"],
        ["project", projectId, "Puffin four"],
        ["schedule", schedule_id, "puffin-3"],
        ["endpoint", second, "Puffin two"],
        ["endpoint", first, "https://puffin.example/one"],
      ])
    },
  )
})
