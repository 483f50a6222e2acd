import { expect } from "@effect/vitest"
import { layer } from "../../support/it.ts"
import { TestServer } from "../../support/server.ts"
import { all } from "../sessions/world.ts"

const unknown = "01KAHBMKZ3D2X7S5QN8W4V6R9T"
/** Operations that read something of an org, and name nothing else in their paths. */
const reads = all.filter(({ method, path }) => method === "GET" && /^[^{]*\{orgId\}[^{]*$/.test(path))

layer(TestServer.layer({}), { excludeTestServices: true })("an org that does not exist", (it) => {
  // Seen failing with a list of alerts that is empty.
  it.effect.each(reads)("has nothing to read: $id is a 404", function* ({ path }) {
    const { send } = yield* TestServer
    const { json, status } = yield* send("GET", path.replace("{orgId}", unknown))
    expect([status, json]).toMatchObject([404, { code: "not_found" }])
  })
})
