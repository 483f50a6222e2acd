import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { runCli } from "../support/cli.ts"
import { adminClient, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { closedPort } from "../support/receiver.ts"
import { encryptionKey } from "../support/server.ts"

const urls = Effect.gen(function* () {
  const [DATABASE_URL, node] = [yield* freshPostgres(), yield* freshPostgres("empty")]
  const without = { DATABASE_URL, ENCRYPTION_KEY: encryptionKey }
  return { node, without, env: { ...without, NODES: `east=${node}` }, sql: yield* adminClient(DATABASE_URL) }
})

it.live("a node is opened when all replicas know it, and every process must then name it", function* () {
  const { env, sql, without } = yield* urls
  const nodes = (...args: ReadonlyArray<string>) => runCli(["nodes", ...args], { env })
  expect((yield* nodes("open", "west")).err).toContain("NODES does not name west")

  yield* sql`INSERT INTO replicas (id, started_at, seen_at, nodes) VALUES ('old', now(), now(), '{}')`
  expect((yield* nodes("open", "east")).err).toContain("1 replicas run without the node east")
  yield* sql`UPDATE replicas SET nodes = '{east}'`
  const itself = { ...env, NODES: `east=${env.DATABASE_URL}` }
  expect((yield* runCli(["nodes", "open", "east"], { env: itself })).err).toContain("Give the node an empty one")
  expect(yield* nodes("open", "east")).toMatchObject({ code: 0 })
  expect(yield* sql`SELECT name FROM open_nodes`).toEqual([{ name: "east" }])

  const unnamed = yield* runCli(["migrate"], { env: without })
  expect([unnamed.code, unnamed.err]).toEqual([1, expect.stringContaining("NODES does not name the node east")])
  yield* nodes("close", "east")
  expect(yield* sql`SELECT name FROM open_nodes`).toEqual([])
  expect(yield* runCli(["migrate"], { env: without })).toMatchObject({ code: 0 })
})

it.live("doctor checks nodes, and reencrypt reaches their secrets", function* () {
  const { env, node, sql } = yield* urls
  yield* runCli(["migrate"], { env })
  yield* sql`INSERT INTO orgs (id, name, created_at, node) VALUES ('o', 'o', now(), 'east')`
  const there = yield* adminClient(node)
  yield* there`
      INSERT INTO webhook_endpoints (id, org_id, lane, url, active, secret, created_at, updated_at)
      VALUES ('w', 'o', 'w', 'http://127.0.0.1', true, 'v1.00000000.AAAA', now(), now())`
  const { out } = yield* runCli(["doctor"], { env })
  expect(out).toMatch(/ok {4}node {11}east has 1 org and [\d.]+ MB, and gets no new orgs/)
  expect(out).toMatch(/ok {4}connections {4}east: 1 processes open up to 12 connections, of \d+ that it allows/)
  yield* sql`
      INSERT INTO replicas (id, started_at, seen_at) SELECT n::text, now(), now() FROM generate_series(1, 60) AS n`
  expect((yield* runCli(["doctor"], { env })).out).toContain("set its max_connections to 732 and some for yourself")
  expect(out).toContain("on east, 1 of 1 stored secrets cannot be decrypted")
  const reencrypted = yield* runCli(["secrets", "reencrypt"], { env })
  expect(reencrypted.err).toContain("cannot be decrypted with the keys of ENCRYPTION_KEY: w")

  const unreachable = `east=postgres://u@127.0.0.1:${yield* closedPort}/db`
  const lost = yield* runCli(["doctor"], { env: { ...env, NODES: unreachable } })
  expect(lost.out).toMatch(/fail {2}node {11}east cannot be used: /)
})
