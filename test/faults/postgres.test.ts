import { assert, describe } from "@effect/vitest"
import { PgConnection } from "@effect/sql-pg"
import { Effect, Exit, Redacted, Schedule, Scope } from "effect"
import { adminClient, freshPostgres, inDatabase } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { startService } from "../support/process.ts"
import { proxied } from "../support/proxy.ts"
import { crash, makePostgres, restartablePostgres } from "./postgres.ts"
import { mayMount, smallDisk } from "./smallDisk.ts"
import { hurried, onPostgres, until } from "./support.ts"
import { makeWitness } from "./witness.ts"

/** A service on the database, and its witness. */
const watched = Effect.fnUntraced(function* (url: string) {
  const service = yield* startService({ ...hurried, ...onPostgres(url).environment })
  return yield* makeWitness(() => service)
})

// Seen failing, all of them, when no database error became `Unavailable`, and without timeouts in operations and in
// readiness.
describe.concurrent("faults of PostgreSQL", () => {
  /**
   * Promise (PostgreSQL fails): While PostgreSQL is stopped, requests and readiness are 503. After its start,
   * everything works.
   */
  it.live("a stop and a start", function* () {
    const { start, stop, url } = yield* restartablePostgres
    const { through } = yield* watched(url)
    yield* through({ name: "stopped", begin: stop, lasts: "5 seconds", end: start, ready: 503 })
  })

  /**
   * Promise (PostgreSQL fails): If every response takes two seconds, requests that miss their deadline are 503, and
   * readiness says so.
   */
  it.live("slowness: two seconds for every answer", function* () {
    const proxy = yield* proxied(yield* freshPostgres())
    const { through } = yield* watched(proxy.url)
    yield* through({ name: "slow", begin: proxy.slow(2_000), lasts: "8 seconds", end: proxy.slow(0), ready: 503 })
  })

  /**
   * Promise (PostgreSQL fails): On a read-only database (a standby), writes are 503 and keys are validated. Readiness
   * stays 200.
   */
  it.live("read-only, like a standby", function* () {
    const url = yield* freshPostgres()
    const sql = yield* adminClient(url)
    const { acts, through } = yield* watched(url)
    const database = sql(new URL(url).pathname.slice(1))
    const anew = sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'gatehouse'`
    yield* through({
      name: "read-only",
      begin: Effect.andThen(sql`ALTER DATABASE ${database} SET default_transaction_read_only = on`, anew),
      lasts: "5 seconds",
      end: Effect.andThen(
        sql.withTransaction(
          Effect.andThen(
            sql`SET TRANSACTION READ WRITE`,
            sql`ALTER DATABASE ${database} RESET default_transaction_read_only`,
          ),
        ),
        anew,
      ),
      ready: 200,
    })
    assert.isNotEmpty(acts.filter(({ what, status }) => what === "write" && status === 503))
  })

  /**
   * Promise (Dumps and old snapshots): A forgotten transaction (idle, with a snapshot) or a long `pg_dump`, beside
   * which nothing dead can be removed: rate and latency of publish → deliver and of create → claim → complete stay as
   * they are.
   */
  it.live("a dump and a forgotten transaction: no vacuum, and no lock of a whole table", function* () {
    const url = yield* freshPostgres()
    const { acts, through } = yield* watched(url)
    const holders = yield* Scope.make()
    const hold = (statement: string) =>
      Effect.gen(function* () {
        const connection = yield* PgConnection.make({ url: Redacted.make(url) }).pipe(Scope.provide(holders))
        yield* connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
        yield* connection.query(statement)
      })
    // What pg_dump locks, for as long as it runs.
    const lockAll = `DO $$ DECLARE t regclass; BEGIN
        FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') LOOP
          EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE', t);
        END LOOP; END $$`
    yield* through({
      name: "no vacuum",
      begin: Effect.andThen(hold("SELECT count(*) FROM events"), hold(lockAll)),
      lasts: "30 seconds",
      end: Scope.close(holders, Exit.void),
      ready: 200,
    })
    assert.deepStrictEqual(
      acts.filter(({ status }) => status >= 500),
      [],
    )
  })

  /**
   * Promise (PostgreSQL fails): If PostgreSQL is out of connections, requests that miss their deadline are 503, and
   * readiness says so.
   */
  it.live("no connections left", function* () {
    const { url } = yield* makePostgres("max_connections=20")
    const { through } = yield* watched(url)
    const sql = yield* adminClient(url)
    const hogs = yield* Scope.make()
    let taken = 0
    const hog = PgConnection.make({ url: Redacted.make(url) }).pipe(
      Effect.retry(Schedule.spaced("5 millis")),
      Scope.provide(hogs),
      Effect.andThen(Effect.sync(() => taken++)),
    )
    const evict = sql`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'gatehouse%'`
    const takeAll = Effect.gen(function* () {
      yield* sql`SELECT 1`
      for (let n = 0; n < 20; n++) yield* Effect.forkIn(hog, hogs)
      // Ends the connections that the service still has, until all connections are in use.
      yield* Effect.repeat(evict, { until: () => taken >= 19, schedule: Schedule.spaced("20 millis") })
    })
    yield* through({
      name: "out of connections",
      begin: takeAll,
      lasts: "5 seconds",
      end: Scope.close(hogs, Exit.void),
      ready: 503,
    })
  })

  /**
   * Promise (PostgreSQL fails): After a crash of the server, the connections return. The last claims and records may
   * be delivered again.
   */
  it.live("a crash: a killed backend ends every connection", function* () {
    const { url } = yield* restartablePostgres
    const { through } = yield* watched(url)
    yield* through({ name: "crashed", begin: crash(url), lasts: 0, end: Effect.void })
  })

  /**
   * Promise (PostgreSQL fails): On a full disk (a tablespace of 64 MiB on a tmpfs; skipped where none can be mounted),
   * writes are 503 and keys are validated. Readiness stays 200.
   */
  it.live.skipIf(!mayMount)("no disk space: a full tablespace of 64 MiB", function* () {
    const disk = yield* smallDisk
    const { url } = yield* restartablePostgres
    const sql = yield* adminClient(url)
    yield* sql`CREATE TABLESPACE small LOCATION ${sql.literal(`'${disk.folder}'`)}`
    yield* sql`CREATE DATABASE small TABLESPACE small`
    const { acts, through } = yield* watched(inDatabase(url, "small"))
    // Writes first use up the free space in existing pages.
    const refused = () => acts.some(({ what, status }) => what === "write" && status === 503)
    const full = Effect.andThen(disk.fill, until(refused))
    yield* through({ name: "out of disk", begin: full, lasts: "4 seconds", end: disk.free, ready: 200 })
  })
})
