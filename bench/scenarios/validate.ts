import { join } from "node:path"
import { readFileSync, writeFileSync } from "node:fs"
import { type LoadRequest, prepareLoad } from "../support/load.ts"
import { startPeer } from "../support/peer.ts"
import { folder, startPostgres } from "../support/postgres.ts"
import { compare } from "../support/rounds.ts"
import { atLeast, atMost, loadTable, type Scenario } from "../support/result.ts"
import { adminToken, asAdministrator, makeTenant, startService, times } from "../support/service.ts"

/** The number of different keys that are validated in turn. */
const keyCount = 1_000

const requests = (keys: ReadonlyArray<string>): ReadonlyArray<LoadRequest> =>
  keys.map((key) => ({
    method: "POST",
    path: "/api/v0/keys/validate",
    headers: asAdministrator,
    body: JSON.stringify({ key }),
  }))

/** Validation of keys, from memory and through the database, beside Fastify and better-auth. */
export const validate: Scenario = {
  name: "validate",
  title: "Validate a key",
  about: `POST /api/v0/keys/validate with ${keyCount} keys in turn and the caller's credential, 64 connections.`,
  run: async (scope, { quick, rounds, say, seconds, warmUp }) => {
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const watched = (server: { readonly pid: number }) => ({ server: server.pid, database: postgres.cpu })
    const file = join(home, "keys.json")

    const service = async (name: string, environment: Readonly<Record<string, string>>) => {
      const url = await postgres.database(name)
      const started = await startService(scope, home, { DATABASE_URL: url, ...environment })
      const { projectId } = await makeTenant(started)
      const keys = await times(
        keyCount,
        async (n) => (await started.manage("/api/v0/keys", { name: `key ${n}`, projectId }))["key"] as string,
      )
      writeFileSync(file, JSON.stringify(keys))
      return prepareLoad(home, started.url, requests(keys), watched(started))
    }
    const peer = async (program: string, environment: Readonly<Record<string, string>> = {}) => {
      const url = await postgres.database(`${program}${environment["TUNED"] ?? ""}`.toLowerCase())
      const started = await startPeer(scope, home, program, {
        DATABASE_URL: url,
        ADMIN_TOKEN: adminToken,
        KEYS: file,
        COUNT: String(keyCount),
        ...environment,
      })
      const keys = JSON.parse(readFileSync(file, "utf8")) as ReadonlyArray<string>
      return prepareLoad(home, started.url, requests(keys), watched(started))
    }

    const subjects = {
      "Gatehouse, from memory": await service("gatehouse", {}),
      "Gatehouse, through the database": await service("uncached", { KEY_CACHE_SIZE: "0" }),
      "Fastify that does nothing": await peer("fastifyNothing"),
      "Fastify + pg, tuned": await peer("fastifyPg", { TUNED: "1" }),
      ...(quick ? {} : { "Fastify + pg, as documented": await peer("fastifyPg") }),
      // These come last, because they replace the keys by their own.
      ...(quick ? {} : { "better-auth, as documented": await peer("betterAuth") }),
      "better-auth, tuned": await peer("betterAuth", { TUNED: "1" }),
    }
    const found = await compare(subjects, { rounds, seconds, warmUp, say })
    const rate = (name: keyof typeof subjects) => found[name]!.perSecond
    const fastifyPg = "Fastify + pg, tuned"
    return {
      tables: [loadTable("Validate", found, fastifyPg)],
      bars: [
        atLeast("Validate from memory ÷ Fastify + pg", 2, rate("Gatehouse, from memory") / rate(fastifyPg)),
        atLeast(
          "Validate from memory ÷ Fastify that does nothing",
          0.85,
          rate("Gatehouse, from memory") / rate("Fastify that does nothing"),
        ),
        atMost(
          "p99 of validate from memory ÷ Fastify + pg's",
          1,
          found["Gatehouse, from memory"]!.p99 / found[fastifyPg]!.p99,
        ),
        atLeast(
          "Validate through the database ÷ Fastify + pg",
          1.5,
          rate("Gatehouse, through the database") / rate(fastifyPg),
        ),
        atLeast("Validate from memory ÷ better-auth", 20, rate("Gatehouse, from memory") / rate("better-auth, tuned")),
      ],
      notes: [],
    }
  },
}
