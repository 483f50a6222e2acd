import { Database } from "./Database.ts"
import { Notifications } from "./Notifications.ts"
import { Effect, Stream, Redacted } from "effect"
import { SqlClient } from "effect/sql"
const p = Effect.gen(function*(){
  const sql = yield* SqlClient.SqlClient
  const n = yield* Notifications
  yield* n.listen("chan").pipe(Stream.runForEach(e => Effect.log(e)), Effect.forkScoped)
  yield* Effect.sleep(300)
  yield* sql`create table t (id int primary key)`.pipe(Effect.ignore)
  yield* sql`truncate t`
  const r = yield* Effect.exit(sql.withTransaction(sql`insert into t values (1)`.pipe(Effect.andThen(sql`insert into t values (1)`))))
  console.log(r._tag)
  yield* sql.withTransaction(sql`select pg_notify('chan','yes')`)
  yield* Effect.exit(sql.withTransaction(Effect.andThen(sql`select pg_notify('chan','no')`, Effect.fail('x'))))
  yield* Effect.all(Array.from({length:50},(_, i)=> i%2? sql.withTransaction(sql`insert into t values (${i})`) : sql`insert into t values (${i})`), {concurrency: 'unbounded'})
  console.log(yield* sql`select count(*)::int as c from t`)
  const d = yield* Database
  console.time('ready'); yield* d.ready; console.timeEnd('ready')
  yield* Effect.sleep(300)
}).pipe(Effect.scoped)
console.time('all')
const a = process.argv[2]!
Effect.runPromise(p.pipe(Effect.provide(Database.layer(a.startsWith('postgres') ? {databaseUrl: Redacted.make(a), dataDir:''} : {dataDir:a})))).then(()=>{console.timeEnd('all'); console.log(Math.round(process.memoryUsage.rss()/1e6),'MB')},console.error)
