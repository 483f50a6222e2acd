import { Effect } from "effect"
import type { Page } from "playwright-core"
import { expect } from "vitest"
import { makeTenant } from "../http/tenants.ts"
import { makeReceiver } from "../support/receiver.ts"
import { adminToken, TestServer } from "../support/server.ts"

/**
 * A tenant with an endpoint, and the receiver behind it. Guarded mode takes https urls only, so the url is set in the
 * table.
 */
export const webhookWorld = Effect.gen(function* () {
  const server = yield* TestServer
  const { sql } = server
  const tenant = yield* makeTenant(adminToken)
  const receiver = yield* makeReceiver()
  const pointTo = (id: string, url = `${receiver.url}/hooks`) =>
    sql`UPDATE webhook_endpoints SET url = ${url} WHERE org_id = ${tenant.orgId} AND id = ${id}`
  const endpoint = Effect.fnUntraced(function* (fields: object = {}) {
    const id = yield* tenant.endpoint("https://localhost:9/hooks", { ...fields })
    yield* pointTo(id)
    return id
  })
  /** Publishes an event of the tenant's own; returns its id. */
  const publish = (type: string, data: unknown = {}) =>
    Effect.map(tenant.call("events/publish", { type, data }), ({ event_id }) => String(event_id))
  return {
    ...tenant,
    server,
    receiver,
    endpoint,
    pointTo,
    publish,
    path: (page: string) => `/orgs/${tenant.orgId}${page}`,
  }
})

/** What would run if a page made HTML of a tenant's text. */
export const hostile = `"><img src=x onerror="globalThis.hacked=1"><script>globalThis.hacked=1</script>{{7*7}}`

/** Whether a page shows a tenant's text as text: it stands there as it is, and no element was made of it. */
export const expectShownAsText = async (page: Page, text: string | RegExp) => {
  await page.getByText(text).first().waitFor({ state: "attached" })
  const made = await page.evaluate(
    "[globalThis.hacked, document.querySelectorAll('img[src=x], main script, [onerror]').length].join()",
  )
  expect(made, page.url()).toBe(",0")
}
