import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { adminToken, guarded, TestServer } from "../../support/server.ts"
import type { Tenant } from "../tenants.ts"
import { openPortal, portalLink, signIn } from "./signedIn.ts"
import { all, makeWorld, requestOf } from "./world.ts"

const sessionsOf = Effect.fnUntraced(function* (tenant: Tenant, projectKey: string) {
  return {
    orgKey: yield* signIn(tenant.key),
    projectKey: yield* signIn(projectKey),
    portal: yield* openPortal(yield* portalLink(tenant.headers)),
    ofHolder: yield* openPortal(yield* portalLink(tenant.headers, { webhooks: false, keys: { external_id: "c" } })),
  }
})

/** Operations that end the session itself, need another credential, or have an answer without an end (live.test.ts). */
const apart = ["live.follow", "sessions.remove", "sessions.create", "sessions.openPortal", "deployments.register"]

layer(TestServer.layer(guarded), { excludeTestServices: true })(
  "every operation of the definition, by session",
  (it) => {
    it.effect("whoAmI lists exactly the operations that are allowed", function* () {
      const { send } = yield* TestServer
      for (const kind of ["orgKey", "projectKey", "portal", "ofHolder"] as const) {
        const enter = Effect.gen(function* () {
          const { ids, projectKey, tenant } = yield* makeWorld
          return { ids, ...(yield* sessionsOf(tenant, projectKey))[kind] }
        })
        let world = yield* enter
        const { operations } = world.me
        const isListed = ({ id }: (typeof all)[number]) => id.startsWith("system.") || operations.includes(id)
        const ask = Effect.fnUntraced(function* (operation: (typeof all)[number]) {
          const { path, ...request } = requestOf(operation, world.ids)
          const { status, text } = yield* send(operation.method, path, { ...request, headers: world.headers })
          return [[401, 403].includes(status), `${operation.id} by ${kind}: ${status} ${text.slice(0, 200)}`] as const
        })
        const asked = all.filter(({ id }) => !apart.includes(id))
        // What is refused changes nothing, so all of it is asked with a session that lives.
        for (const operation of asked.filter((one) => !isListed(one))) {
          const [isRefused, at] = yield* ask(operation)
          expect(isRefused, at).toBe(true)
        }
        for (const operation of asked.filter(isListed)) {
          let [isRefused, at] = yield* ask(operation)
          // An earlier one may have ended the session, with what it deleted.
          if (isRefused) {
            world = yield* enter
            ;[isRefused, at] = yield* ask(operation)
          }
          expect(isRefused, at).toBe(false)
        }
      }
    })

    it.effect("a session of one org reads nothing of another, and changes nothing", function* () {
      const { send } = yield* TestServer
      const stranger = yield* makeWorld
      const sessions = yield* sessionsOf(stranger.tenant, stranger.projectKey)
      const { ids, tenant } = yield* makeWorld
      const secrets = Object.values(ids)
      const snapshot = Effect.gen(function* () {
        const read = (path: string) => Effect.map(send("GET", path, { as: adminToken }), ({ text }) => text)
        return [
          // Stored bytes are measured every minute.
          (yield* read(`/api/v0/orgs/${tenant.orgId}`)).replace(/"storedBytes":(\{[^}]*\}|[^,}]*)/g, ""),
          yield* read(`/api/v0/projects/${ids["projectId"]}`),
          yield* read(`/api/v0/orgs/${tenant.orgId}/keys`).pipe(
            Effect.map((text) => text.replace(/"lastUsedAt":[^,}]*/g, "")),
          ),
          JSON.stringify(yield* tenant.call("webhooks/list")),
          JSON.stringify(yield* tenant.call("jobs/list", {})).replace(/"updated_at":[^,}]*/g, ""),
          JSON.stringify(yield* tenant.call("schedules/list")),
        ]
      })
      const before = yield* snapshot
      let tried = 0
      for (const { headers } of Object.values(sessions)) {
        for (const operation of all.filter(({ id }) => !apart.includes(id))) {
          const { path, ...request } = requestOf(operation, ids)
          // Any holder of a key gets the answer of a validation.
          if (operation.id === "keys.validate") continue
          for (const more of [{}, { "x-org-id": tenant.orgId }]) {
            const answer = yield* send(operation.method, path, { ...request, headers: { ...headers, ...more } })
            // Its outcomes repeat the ids that the request has.
            const text = answer.text.replace(/"job_id":"\w+","success":false/g, "")
            for (const secret of secrets) expect(text, operation.id).not.toContain(secret)
            tried++
          }
        }
      }
      expect(tried).toBe(4 * 2 * (all.length - apart.length - 1))
      expect(yield* snapshot).toEqual(before)
    })
  },
)
