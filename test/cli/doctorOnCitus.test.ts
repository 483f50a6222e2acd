import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { placementChecks, sizeChecks } from "#src/infrastructure/checks/postgres.ts"
import { citusUrl, closeDatabase, freshCitusNodes, nodeOfShard } from "../support/citus.ts"
import { runCli } from "../support/cli.ts"
import { adminClient } from "../support/databases.ts"
import { encryptionKey } from "../support/server.ts"

interface Found {
  readonly name: string
  readonly state: string
  readonly message: string
  readonly remedy?: string
}

const doctor = Effect.fnUntraced(function* (url: string) {
  const env = { DATABASE_URL: url, ENCRYPTION_KEY: encryptionKey }
  const { out } = yield* runCli(["doctor", "--json"], { env })
  const { checks } = JSON.parse(out) as { readonly checks: ReadonlyArray<Found> }
  return { of: (name: string) => checks.filter((check) => check.name === name) }
})

const noOrg = () => Effect.succeed(undefined)

describe("doctor about shards", () => {
  it("names a shard whose tables are on several nodes, and the statement that brings them to one", () => {
    const [check] = placementChecks(2, [
      { schema: "gatehouse_b00", plain: 0, nodes: ["db1:5432"] },
      { schema: "gatehouse_b01", plain: 0, nodes: ["db1:5432", "db2:5432"] },
    ])
    assert.strictEqual(check!.state, "fail")
    assert.include(check!.message, "gatehouse_b01")
    assert.include(check!.remedy!, "citus_schema_move('gatehouse_b01', 'db1', 5432)")
  })

  it.effect("warns of an org that fills its shard and its node", () =>
    Effect.gen(function* () {
      const sizes = [
        { schema: "gatehouse_b00", node: "db1:5432", bytes: 40e9 },
        { schema: "gatehouse_b01", node: "db1:5432", bytes: 5e9 },
        { schema: "gatehouse_b02", node: "db2:5432", bytes: 5e9 },
      ]
      const [check, ...others] = yield* sizeChecks(["db1:5432", "db2:5432"], sizes, (schema) =>
        Effect.succeed({ orgId: `the org of ${schema}`, share: 0.9 }),
      )
      assert.deepStrictEqual(others, [])
      assert.strictEqual(check!.state, "warn")
      assert.include(check!.message, "gatehouse_b00 has 40 GB of the 45 GB on db1:5432")
      assert.include(check!.message, "the org the org of gatehouse_b00 has 90 %")
    }),
  )

  it.effect("warns of a new node without shards, and not of a small database", () =>
    Effect.gen(function* () {
      const on = (bytes: number) =>
        ["00", "01", "02", "03"].map((n) => ({ schema: `gatehouse_b${n}`, node: "db1:5432", bytes }))
      const [uneven] = yield* sizeChecks(["db1:5432", "db2:5432"], on(10e9), noOrg)
      assert.strictEqual(uneven!.state, "warn")
      assert.include(uneven!.remedy!, "citus_rebalance_start")
      const [small] = yield* sizeChecks(["db1:5432", "db2:5432"], on(1e6), noOrg)
      assert.strictEqual(small!.state, "ok")
    }),
  )
})

describe.skipIf(citusUrl === undefined)("doctor on Citus", () => {
  it.live("finds nothing wrong, then a secret in a shard that cannot be decrypted, then a missing shard", () =>
    Effect.gen(function* () {
      const [url] = yield* freshCitusNodes("three")
      const healthy = yield* doctor(url!)
      assert.deepStrictEqual(
        ["shards", "nodes", "balance", "encryption", "storage"].map((name) =>
          healthy.of(name).map(({ message, state }) => (state === "ok" ? state : message)),
        ),
        [["ok"], ["ok", "ok"], ["ok"], ["ok"], ["ok"]],
      )
      const sql = yield* adminClient(url!)
      yield* sql`INSERT INTO gatehouse_b02.webhook_endpoints (id, org_id, url, active, secret, created_at, updated_at)
        VALUES ('w', 'o', 'http://127.0.0.1', true, 'v1.12345678.AAAA', now(), now())`
      const [secrets] = (yield* doctor(url!)).of("encryption")
      assert.include(secrets!.message, "1 of 1 stored secrets cannot be decrypted")

      yield* sql`DROP SCHEMA gatehouse_b01 CASCADE`
      const [missing] = (yield* doctor(url!)).of("shards")
      assert.strictEqual(missing!.state, "fail")
      assert.include(missing!.message, "1 of 3 shards are missing: gatehouse_b01")
    }).pipe(Effect.scoped),
  )

  it.live("names a node that cannot be used, with its shards", () =>
    Effect.gen(function* () {
      const [url] = yield* freshCitusNodes("three")
      const node = yield* nodeOfShard(url!, 0)
      yield* closeDatabase(node)
      const failed = (yield* doctor(url!)).of("nodes").filter(({ state }) => state === "fail")
      assert.strictEqual(failed.length, 1)
      assert.include(failed[0]!.message, new URL(node).host)
      assert.include(failed[0]!.message, "shards, cannot be used")
    }).pipe(Effect.scoped),
  )
})
