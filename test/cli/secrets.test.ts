import { expect } from "@effect/vitest"
import { runCli } from "../support/cli.ts"
import { adminClient, freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { encryptionKey } from "../support/server.ts"

it.live("the old key is not called superfluous while a replica encrypts with it", function* () {
  const url = yield* freshPostgres()
  const env = { DATABASE_URL: url, ENCRYPTION_KEY: encryptionKey }
  const reencrypt = runCli(["secrets", "reencrypt"], { env })
  expect((yield* reencrypt).err).toContain("Remove the other keys.")
  const sql = yield* adminClient(url)
  yield* sql`
      INSERT INTO replicas (id, started_at, seen_at, encryption_key_id) VALUES ('r', now(), now(), '00000000')`
  const { code, err } = yield* reencrypt
  expect([code, err]).toEqual([1, expect.stringContaining("1 replica may still encrypt with another key (00000000)")])
  expect(err).not.toContain("Remove the other keys.")
  yield* sql`DELETE FROM replicas`
  expect((yield* reencrypt).code).toBe(0)
})
