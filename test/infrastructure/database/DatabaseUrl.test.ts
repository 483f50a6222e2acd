import { expect } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Redacted, Result } from "effect"
import { Reactivity } from "effect/reactivity"
import { chownSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

import { parseDatabaseUrl } from "#src/infrastructure/database/DatabaseUrl.ts"
import { client, describeSqlError } from "#src/infrastructure/database/PostgresDatabase.ts"
import { makePostgres } from "../../faults/postgres.ts"
import { makeAuthority, selfSigned } from "../../support/certificate.ts"
import { adminClient } from "../../support/databases.ts"
import { it, layer } from "../../support/it.ts"
import { proxied } from "../../support/proxy.ts"

/**
 * Promise (Connections to PostgreSQL): With `sslmode` and certificates, the connection is exactly as secure as `psql`
 * would make it, or refused.
 */

/** A PostgreSQL with TLS and a certificate for `localhost` of the test's own authority. */
class TlsPostgres extends Context.Service<
  TlsPostgres,
  {
    readonly url: string
    /** The folder of the certificates. */
    readonly folder: string
    readonly databaseDir: string
    /** Runs a statement as the superuser. */
    readonly run: (statement: string) => Effect.Effect<unknown>
    /** Replaces the rules of pg_hba.conf. */
    readonly allow: (...rules: ReadonlyArray<string>) => Effect.Effect<unknown>
  }
>()("test/TlsPostgres") {
  static readonly layer = Layer.effect(
    TlsPostgres,
    Effect.gen(function* () {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "gatehouse-tls-"))),
        (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true })),
      )
      const { databaseDir, url } = yield* makePostgres()
      const { gid, uid } = statSync(databaseDir)
      const store = (path: string, content: string) => {
        writeFileSync(path, content, { mode: 0o600 })
        if (path.startsWith(databaseDir)) chownSync(path, uid, gid)
      }
      const authority = makeAuthority("the test's own CA")
      const server = authority.issue("localhost")
      const person = authority.issue("postgres")
      store(join(databaseDir, "ca.crt"), authority.cert)
      store(join(databaseDir, "server.crt"), server.cert)
      store(join(databaseDir, "server.key"), server.key)
      store(join(folder, "ca.crt"), authority.cert)
      store(join(folder, "client.crt"), person.cert)
      store(join(folder, "client.key"), person.key)
      store(join(folder, "other.crt"), makeAuthority("another CA").cert)
      const run = (statement: string) =>
        Effect.orDie(Effect.scoped(Effect.flatMap(adminClient(url), (sql) => sql.unsafe(statement).unprepared)))
      const allow = (...rules: ReadonlyArray<string>) =>
        Effect.suspend(() => {
          store(join(databaseDir, "pg_hba.conf"), `local all all password\n${rules.join("\n")}\n`)
          return run("SELECT pg_reload_conf()")
        })
      yield* run("ALTER SYSTEM SET ssl_ca_file = 'ca.crt'")
      yield* run("ALTER SYSTEM SET ssl = on")
      yield* run("SELECT pg_reload_conf()")
      return { url, folder, databaseDir, run, allow }
    }),
  )
}

const anyone = "host all all all password"

/** Connects with the URL's parameters: the state of TLS, or the message of the failure. */
const connectWith = (url: string) =>
  client(Redacted.make(url)).pipe(
    Effect.flatMap(
      (sql) => sql<{ encrypted: boolean; subject: string | null }>`
        SELECT ssl AS encrypted, client_dn AS subject FROM pg_stat_ssl WHERE pid = pg_backend_pid()`,
    ),
    Effect.match({ onSuccess: ([row]) => row!, onFailure: describeSqlError }),
    Effect.scoped,
    Effect.provide(Reactivity.layer),
  )

const encrypted = { encrypted: true, subject: null }
const unverified = expect.stringMatching(/certificate in certificate chain; sslrootcert/)
const plain = { encrypted: false, subject: null }

layer(TlsPostgres.layer, { excludeTestServices: true })("a connection to PostgreSQL with TLS", (it) => {
  it.effect("checks the server as far as sslmode says, and no further", function* () {
    const { allow, folder, url } = yield* TlsPostgres
    yield* allow(anyone)
    const [ca, other] = [`sslrootcert=${folder}/ca.crt`, `sslrootcert=${folder}/other.crt`]
    const named = url.replace("127.0.0.1", "localhost")
    const results = yield* Effect.forEach(
      [
        [url, ""],
        [url, "sslmode=disable"],
        [url, "sslmode=prefer"],
        [url, "sslmode=require"],
        [url, `sslmode=require&${ca}`],
        [url, `sslmode=require&${other}`],
        [url, "sslmode=verify-ca"],
        [url, `sslmode=verify-ca&${ca}`],
        [url, `sslmode=verify-ca&${other}`],
        [named, `sslmode=verify-full&${ca}`],
        [named, `sslmode=verify-full&${other}`],
        [named, "sslrootcert=system"],
        [url, `sslmode=verify-full&${ca}`],
        // Not with the certificate, so without TLS, as libpq does it.
        [url, `sslmode=prefer&${other}`],
      ] as const,
      ([at, query]) => Effect.map(connectWith(`${at}?${query}`), (state) => [query.replaceAll(folder, ""), state]),
    )
    expect(results).toEqual([
      ["", encrypted],
      ["sslmode=disable", plain],
      ["sslmode=prefer", encrypted],
      ["sslmode=require", encrypted],
      ["sslmode=require&sslrootcert=/ca.crt", encrypted],
      ["sslmode=require&sslrootcert=/other.crt", unverified],
      ["sslmode=verify-ca", unverified],
      ["sslmode=verify-ca&sslrootcert=/ca.crt", encrypted],
      ["sslmode=verify-ca&sslrootcert=/other.crt", unverified],
      ["sslmode=verify-full&sslrootcert=/ca.crt", encrypted],
      ["sslmode=verify-full&sslrootcert=/other.crt", unverified],
      ["sslrootcert=system", unverified],
      ["sslmode=verify-full&sslrootcert=/ca.crt", expect.stringContaining("127.0.0.1")],
      ["sslmode=prefer&sslrootcert=/other.crt", plain],
    ])
  })

  it.effect("uses a client certificate instead of a password", function* () {
    const { allow, folder, run, url } = yield* TlsPostgres
    // The superuser of the tests keeps its password without TLS.
    yield* allow("hostnossl all all all password", "hostssl all all all cert")
    const without = url.replace(":password@", "@").replace("127.0.0.1", "localhost")
    const verified = `${without}?sslmode=verify-full&sslrootcert=${folder}/ca.crt`
    expect(yield* connectWith(verified)).toContain("certificate")
    expect(yield* connectWith(`${verified}&sslcert=${folder}/client.crt&sslkey=${folder}/client.key`)).toEqual({
      encrypted: true,
      subject: "/CN=postgres",
    })
    yield* run("SELECT 1")
  })

  it.effect(
    "reads certificates again when a connection opens, and keeps the last ones that it could read",
    function* () {
      const { allow, folder, url } = yield* TlsPostgres
      yield* allow(anyone)
      const path = join(folder, "rotated.crt")
      const { cert } = makeAuthority("the CA before")
      writeFileSync(path, cert)
      const { config } = Result.getOrThrow(parseDatabaseUrl(`${url}?sslmode=verify-ca&sslrootcert=${path}`))
      const context = () => (config.ssl === false ? undefined : config.ssl.secureContext)
      const before = context()
      expect(context()).toBe(before)
      writeFileSync(path, selfSigned({ names: ["the CA after"] }).cert)
      const after = context()
      expect(after).not.toBe(before)
      rmSync(path)
      expect(context()).toBe(after)
    },
  )

  it.effect("needs no TLS of the server with prefer", function* () {
    const { allow, run, url } = yield* TlsPostgres
    yield* allow(anyone)
    yield* run("ALTER SYSTEM SET ssl = off")
    yield* run("SELECT pg_reload_conf()")
    expect(yield* connectWith(url)).toEqual(plain)
    expect(yield* connectWith(`${url}?sslmode=prefer`)).toEqual(plain)
    expect(yield* connectWith(`${url}?sslmode=require`)).toBe("The server does not support TLS")
    // A connection that breaks fails its statement at once.
    const proxy = yield* proxied(url)
    const sql = yield* Effect.provide(client(Redacted.make(proxy.url)), Reactivity.layer)
    expect(yield* sql`SELECT repeat('x', 3000000) = ${"x".repeat(3_000_000)} AS same`).toEqual([{ same: true }])
    expect((yield* sql<{ text: string }>`SELECT repeat('x', 3000000) AS text`)[0]!.text).toHaveLength(3_000_000)
    yield* proxy.close
    expect(Exit.isFailure(yield* Effect.exit(sql`SELECT 1`))).toBe(true)
  })

  it.effect("goes through the socket that host names, without TLS whatever sslmode is", function* () {
    const { allow, url } = yield* TlsPostgres
    yield* allow(anyone)
    const sql = yield* adminClient(url)
    const [row] = yield* sql<{ folders: string }>`SELECT current_setting('unix_socket_directories') AS folders`
    const folder = row!.folders.split(",")[0]!
    const { port } = new URL(url)
    const start = "postgresql://postgres:password@"
    for (const query of [
      `/postgres?host=${folder}&port=${port}`,
      `:${port}/postgres?host=${encodeURIComponent(folder)}&sslmode=require`,
      `${encodeURIComponent(folder)}:${port}/postgres`,
      `?dbname=postgres&host=${folder}&port=${port}`,
    ]) {
      expect(yield* connectWith(start + query), query).toEqual(plain)
    }
  })
})

it("a URL is refused at once, with what is wrong and without its values", () => {
  const fault = (query: string) => Result.getFailure(parseDatabaseUrl(`postgres://u:hidden@h/db?${query}`))
  const faultOf = (query: string) => JSON.stringify(fault(query))
  for (const mode of ["allow", "no-verify", "REQUIRE", "true", ""]) {
    expect(faultOf(`sslmode=${mode}`)).toContain("disable, prefer, require, verify-ca, verify-full")
  }
  for (const parameter of ["channel_binding=require", "sslcrl=/x", "ssl=true", "sslRootCert=/x", "schema=hidden"]) {
    expect(faultOf(parameter), parameter).toContain("must have no other parameters than host, ")
  }
  expect(faultOf("sslrootcert=/no/hidden/file")).toContain("with sslrootcert (ENOENT)")
  expect(faultOf("sslrootcert=/dev/null")).toContain("in PEM with sslrootcert")
  expect(faultOf("sslcert=/dev/null")).toContain("sslcert and sslkey, or neither")
  expect(faultOf("sslmode=require&sslrootcert=system")).toContain("sslmode=verify-full")
  expect(faultOf("host=a,b")).toContain("one host")
  expect(faultOf("port=0")).toContain("a port")
  expect(faultOf("options=%zz")).toContain("%25")
  expect(faultOf("application_name=x&connect_timeout=3")).not.toContain("must")
  expect(faultOf("sslrootcert=/no/hidden/file&schema=hidden&sslmode=hidden")).not.toContain("hidden")
})
