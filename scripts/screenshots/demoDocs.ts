import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { zip } from "../../test/support/zip.ts"
import { type Call, makeReceiver, until } from "./calls.ts"

/** What readers of a shop's documentation ask, and how often. */
const readers = {
  "How do I pay by invoice?": 7,
  "How do I change my address?": 5,
  "Can I return a gift?": 4,
  "Do you ship to Norway?": 3,
  "Where is my order?": 2,
}

/**
 * Documentation that is stored with a project, and questions of its readers over a day. Returns the id of the project.
 */
export const makeDocs = Effect.fnUntraced(function* (
  url: string,
  call: Call,
  sql: SqlClient.SqlClient,
  projectId: string,
  key: string,
) {
  const pages = zip([
    { path: "guides/payment.md", content: "# Payment\n\nPay by card or by invoice, within thirty days." },
    { path: "guides/account.md", content: "# Account\n\nChange your address under Settings." },
    { path: "guides/orders.md", content: "# Orders\n\nWhere your order is: open it, then press Track." },
  ])
  const host = yield* makeReceiver((_, response) => void response.end(pages))
  const path = `/api/v0/projects/${projectId}/docs`
  const settings = { docsUrl: "https://docs.northwind.example/", keepQuestions: true }
  yield* call(undefined, "PUT", path, { ...settings, docsZipUrl: `${host.url}/docs.zip` })
  const isStored = Effect.map(call(undefined, "GET", path), ({ state }) => state === "stored")
  yield* until(isStored)
  for (const [content, times] of Object.entries(readers)) {
    for (let n = 0; n < times; n++) {
      yield* Effect.promise(async () => {
        const answer = await globalThis.fetch(`${url}/api/svc/chat`, {
          method: "POST",
          headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
          body: JSON.stringify({ messages: [{ role: "user", content }] }),
        })
        await answer.text()
      })
    }
  }
  const count = Object.values(readers).reduce((sum, times) => sum + times, 0)
  const kept = sql<{ count: number }>`SELECT count(*)::int AS count FROM docs_questions`.pipe(Effect.orDie)
  yield* until(Effect.map(kept, ([row]) => row?.count === count))
  yield* sql`
    UPDATE docs_questions q SET asked_at = now() - old.n * interval '47 minutes'
    FROM (SELECT id, (row_number() OVER (ORDER BY md5(id)))::int AS n FROM docs_questions) AS old WHERE old.id = q.id`
  yield* sql`UPDATE project_docs SET docs_zip_url = 'https://docs.northwind.example/docs.zip'`
  return projectId
})
