import { parseJson } from "#src/domain/exactJson.ts"
import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { layer } from "../../support/it.ts"
import { onPostgres, TestServer } from "../../support/server.ts"
import { makeTenant } from "../tenants.ts"

const MiB = 1024 * 1024
/** JSON that resembles the answer around it, or that can be written in several ways. */
const json =
  '{"z":1,"a":[1e21,1e-7,-0.5,{"":null}],"10":1,"9":2,"__proto__":{},"text":"\\u0000\\ud800\u2028 \\"},\\"jobs\\":[{é😀"}'
const kept = JSON.stringify(parseJson(json))
const time = String.raw`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`
const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)

layer(TestServer.layer(onPostgres()), { excludeTestServices: true })("pages", (it) => {
  it.effect("stored JSON is answered byte for byte, among exactly the documented fields in their order", function* () {
    const tenant = yield* makeTenant()
    const send = (path: string, fields: string) =>
      Effect.map(
        tenant.ask(path, undefined, { body: `{${fields}}`, headers: { "content-type": "application/json" } }),
        (answer) => {
          expect(answer.status, answer.text).toBe(200)
          return answer
        },
      )
    const create = Effect.map(send("jobs/create", `"workflow":"w","input":${json}`), (answer) =>
      String((answer.json as { job_id: string }).job_id),
    )
    const [failed, completed] = [yield* create, yield* create]
    const claimed = yield* send("jobs/claim", `"limit":1`)
    expect(claimed.headers).toMatchObject({
      "content-type": "application/json",
      "content-length": String(Buffer.byteLength(claimed.text)),
    })
    expect(claimed.text).toMatch(
      new RegExp(
        `^\\{"jobs":\\[\\{"job_id":"${failed}","workflow":"w","input":${escaped(kept)},"deployment_id":null,"attempt":1,"lease_expires_at":${time}\\}\\]\\}$`,
      ),
    )
    yield* send("jobs/fail", `"job_id":"${failed}","error":"\\"e","mapped_stack":${json}`)
    yield* send("jobs/complete", `"job_id":"${completed}","result":${json}`)
    const job = (id: string, status: string, attempt: number, rest: string) =>
      `\\{"job_id":"${id}","workflow":"w","status":"${status}","input":${escaped(kept)},"deployment_id":null,"callback_url":null,"skip_callbacks":false,"concurrency_key":null,"priority":0,"max_attempts":3,"retry_delay_seconds":10,"run_at":null,"unique_key":null,"expires_at":null,"attempt":${attempt},"progress":null,"note":null,"lease_expires_at":null,${escaped(rest)},"created_at":${time},"updated_at":${time},"finished_at":${time}\\}`
    const first = job(failed, "failed", 1, `"result":null,"error":"\\"e","mapped_stack":${kept}`)
    const second = job(completed, "completed", 0, `"result":${kept},"error":null,"mapped_stack":null`)
    const history = `,"steps":\\[\\],"attempt_log":\\[\\{"attempt":1,"ended_at":${time},"note":null,"error":${escaped('"\\"e"')}\\}\\]`
    expect((yield* send("jobs/get", `"job_id":"${failed}"`)).text).toMatch(
      new RegExp(`^${first.slice(0, -2)}${history}\\}$`),
    )
    expect((yield* send("jobs/list", "")).text).toMatch(
      new RegExp(`^\\{"jobs":\\[${second},${first}\\],"next_cursor":null\\}$`),
    )

    yield* send("schedules/create", `"workflow":"w","cron":"0 4 1 1 *","input":${json}`)
    expect((yield* send("schedules/list", "")).text).toMatch(
      new RegExp(
        `^\\{"schedules":\\[\\{"schedule_id":"\\w+","workflow":"w","cron":"0 4 1 1 \\*","timezone":"UTC","input":${escaped(kept)},"deployment_id":null,"callback_url":null,"skip_callbacks":false,"concurrency_key":null,"priority":0,"max_attempts":3,"retry_delay_seconds":10,"expires_in_seconds":null,"overlap":"allow","active":true,"next_at":${time},"created_at":${time}\\}\\]\\}$`,
      ),
    )
  })

  it.effect(
    "webhooks/list and schedules/list return everything, or pages with a cursor when there is more",
    function* () {
      const tenant = yield* makeTenant()
      for (let n = 0; n < 5; n++) {
        yield* tenant.endpoint("https://receiver.example/", { active: false })
        yield* tenant.call("schedules/create", { workflow: "w", cron: "0 4 1 1 *" })
      }
      for (const [path, name] of [
        ["webhooks/list", "webhook_endpoints"],
        ["schedules/list", "schedules"],
      ] as const) {
        const read = Effect.fnUntraced(function* (request?: object) {
          const { [name]: rows, ...rest } = yield* tenant.call(path, request)
          return { rows: rows as unknown as ReadonlyArray<object>, ...rest } as {
            readonly rows: ReadonlyArray<object>
            readonly next_cursor?: string
          }
        })
        const { rows: all, ...rest } = yield* read()
        expect([all.length, rest], path).toEqual([5, {}])
        expect(yield* read({ limit: 5 })).toEqual({ rows: all })
        expect(yield* read({ limit: 1000 })).toEqual({ rows: all })
        const found: Array<object> = []
        const lengths: Array<number> = []
        let cursor: string | undefined
        do {
          const page = yield* read({ limit: 2, ...(cursor === undefined ? {} : { cursor }) })
          found.push(...page.rows)
          lengths.push(page.rows.length)
          cursor = page.next_cursor
        } while (cursor !== undefined)
        expect([found, lengths]).toEqual([all, [2, 2, 1]])
        for (const wrong of [{ limit: 0 }, { limit: 1001 }, { limit: "1" }, { cursor: "x" }, { cursor: null }]) {
          const answer = yield* tenant.ask(path, wrong)
          const field = Object.keys(wrong)[0]!
          expect([answer.status, (answer.json as { message: string }).message], path).toEqual([
            400,
            expect.stringMatching(new RegExp(`^${field} must be `)),
          ])
        }
      }
    },
  )

  it.effect("a list without a limit ends at 1,000, and continues from its cursor", function* () {
    const tenant = yield* makeTenant()
    const { sql } = yield* TestServer
    yield* sql`
        INSERT INTO job_schedules (id, org_id, workflow, cron, timezone, skip_callbacks, next_at, created_at)
        SELECT ${"01KA0000000000000000"} || lpad(n::text, 6, '0'), ${tenant.orgId}, 'w', '0 4 1 1 *', 'UTC', false,
          '2100-01-01', now() FROM generate_series(1, 1001) AS n`
    const first = yield* tenant.call("schedules/list")
    expect([first["schedules"]!.length, first["next_cursor"]!.length]).toEqual([1000, 26])
    const rest = yield* tenant.call("schedules/list", { cursor: first["next_cursor"] })
    expect([rest["schedules"]!.length, rest["next_cursor"]]).toEqual([1, undefined])
  })

  it.effect("lists of large values are read to the end in pages of 4 MiB, each item once", function* () {
    const tenant = yield* makeTenant()
    const input = "x".repeat(MiB - 1024)
    const ids: Array<string> = []
    for (let n = 0; n < 9; n++) {
      ids.unshift(String((yield* tenant.call("jobs/create", { workflow: "w", input }))["job_id"]))
    }
    const found: Array<Array<string>> = []
    let cursor: string | null = null
    do {
      const page = yield* tenant.ask("jobs/list", { limit: 100, ...(cursor === null ? {} : { cursor }) })
      expect(page.text.length).toBeLessThan(4 * MiB + 4096)
      const body = page.json as { jobs: ReadonlyArray<{ job_id: string }>; next_cursor: string | null }
      found.push(body.jobs.map(({ job_id }) => job_id))
      cursor = body.next_cursor
    } while (cursor !== null)
    expect(found).toEqual([ids.slice(0, 4), ids.slice(4, 8), ids.slice(8)])
    const claimed = (yield* tenant.call("jobs/claim", { limit: 100 }))["jobs"] as unknown as ReadonlyArray<object>
    expect(claimed).toHaveLength(4)
  })
})
