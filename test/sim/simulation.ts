import { Effect } from "effect"
import { idAt } from "#src/infrastructure/database/fragments.ts"
import { SimulatedDatabase } from "./database.ts"
import { compiled, engine } from "./engine.ts"
import type { Fault, History, Removed, Violation } from "./history.ts"
import { Issuers, type Manner, orgsOfPeople, Receivers } from "./network.ts"
import { judge, queries } from "./oracle/judge.ts"
import { moments, type Plan, traps, type Trouble } from "./plan.ts"
import { Replica } from "./replica.ts"
import { Clients, tenantOf } from "./workload.ts"
import { Actor, Dice, type Entry, World } from "./world.ts"

/** The limits of a run in virtual time, after the faults have stopped. */
const startMillis = 60_000
/** As long, if there are schedules: each must run a few times while nothing is wrong. */
const schedulesMillis = 220_000
/** How long everything may take to settle: retries, leases, and erasures, with the delays of `replica.ts`. */
const settleMillis = 30 * 60_000

/** How much longer it may take until retention has removed what is old. */
const tidyMillis = 60 * 60_000

/** How often the world is looked at to see whether it can sleep, or has settled. */
const intervalMillis = 2_000
/** How long the replicas are awake for a pass of retention, which is many statements. */
const passMillis = 20_000
/** How long before something is due the replicas are awake again. */
const awakeMillis = 300

/** How a run went. */
export interface Outcome {
  readonly plan: Plan
  readonly log: ReadonlyArray<Entry>
  readonly violations: ReadonlyArray<Violation>
  /** How long the world lived. */
  readonly virtualMillis: number
  /** How long it took a core, with the start of the engine. */
  readonly coreMillis: number
  readonly statements: number
  /** The texts of the statements. */
  readonly texts: ReadonlySet<string>
  /** The requests that an operation of the API has answered: their methods and paths. */
  readonly answered: ReadonlySet<string>
  /** Of all statements and their answers. */
  readonly digest: string
}

/** Opened before any world begins. */
const terminal = process.stdin
/** Each replica that crashed, or whose world has ended, has left a listener of its terminal, which holds all of it. */
export const forgetReplicas = () => void terminal.removeAllListeners("end")

/** The files of a database with all migrations, made once in a process. */
export const migrated = () =>
  (engine.template ??= (async () => {
    const world = new World(0)
    const parts = await compiled
    return world.live(async () => {
      const database = await SimulatedDatabase.open(world, parts)
      const replica = new Replica(surroundingsOf(world, database), "first", rightClock())
      replica.start()
      await world.run(() => replica.isUp)
      replica.crash()
      for (const [n, id] of orgsOfPeople.entries())
        database.rows(`INSERT INTO orgs (id, name, created_at) VALUES ('${id}', 'people${n}', '2029-01-01')`)
      const files = await database.files()
      await database.close()
      return files
    })
  })())

export const rightClock = () => ({ skewMillis: 0, rate: 1 })

const surroundingsOf = (world: World, database: SimulatedDatabase, retentionDays: 1 | 2 = 1) => ({
  world,
  database,
  receivers: new Receivers(world),
  issuers: new Issuers(),
  retentionDays,
  // One data centre, or several.
  linkMillis: world.dice.pick([1, 1, 5, 20]),
})

/** Runs a plan and judges what happened. The same plan has the same outcome; only the real time differs. */
export const simulate = async (plan: Plan): Promise<Outcome> => {
  const parts = { ...(await compiled), loadDataDir: await migrated() }
  const startedAt = process.cpuUsage()
  const world = new World(plan.seed)
  try {
    return await world.live(async () => {
      const database = await SimulatedDatabase.open(world, parts)
      const { answered, history } = await live(plan, world, database)
      await database.close()
      return {
        plan,
        log: world.log,
        violations: judge(history),
        virtualMillis: world.now,
        coreMillis: coreMillisSince(startedAt),
        statements: database.statements,
        texts: database.texts,
        answered,
        digest: database.digest(),
      }
    })
  } finally {
    forgetReplicas()
  }
}

const coreMillisSince = (start: NodeJS.CpuUsage) => {
  const { system, user } = process.cpuUsage(start)
  return (system + user) / 1_000
}

/** Lives through a plan: starts everything, lets operations and faults happen, stops the faults, and waits. */
const live = async (plan: Plan, world: World, database: SimulatedDatabase) => {
  const around = surroundingsOf(world, database, plan.retentionDays)
  const { issuers, receivers } = around
  receivers.failing = plan.habits.failing
  const client = new Actor(world, "clients", rightClock())
  const replicas = Array.from({ length: plan.replicas }, (_, n) => {
    const clock = { skewMillis: world.dice.int(-1_500, 1_500), rate: 1 + (world.dice.next() - 0.5) * 2e-4 }
    return new Replica(around, `r${n + 1}`, clock)
  })
  database.skewMillis = world.dice.int(-1_000, 1_000)
  // Some servers are slow: it gets later while a statement runs.
  const lookMillis = world.dice.pick([0, 0, 0.05, 0.2])
  world.lookMillis = plan.lookMillis ?? lookMillis
  for (const replica of replicas) replica.start()
  await world.run(() => replicas.every(({ isUp }) => isUp))

  const clients = new Clients(around, client, replicas, plan)
  let running = 0
  const begin = (operation: Effect.Effect<unknown>) => {
    running++
    client.enqueue(() =>
      Effect.runForkWith(client.services)(operation).addObserver((exit) => {
        running--
        if (exit._tag === "Failure") world.fail(exit.cause)
      }),
    )
  }
  const tenants = Array.from({ length: plan.tenants }, (_, n) => tenantOf(`t${n + 1}x`))
  for (const tenant of tenants) begin(clients.found(world.dice.fork(), tenant))
  await world.run(() => running === 0)

  const beganAt = world.now
  const planned = [...plan.operations, ...plan.faults]
    .map(({ at }) => beganAt + at)
    .toSorted((one, other) => one - other)
  for (const { at, kind, seed, tenant } of plan.operations) {
    world.after(at, () => begin(clients.run(kind, tenants[tenant]!, new Dice(seed))))
  }
  const faults: Array<Fault> = []
  const calmAt = beganAt + plan.millis
  const strike = (trouble: Trouble, replica: Replica) => {
    const { kind, millis } = trouble
    const end = Math.min(world.now + millis, calmAt)
    if (end <= world.now) return
    const isGlobal = kind === "receiver" || kind === "issuer" || kind === "database clock step"
    const note = (kind: string) =>
      void faults.push({ kind, replica: isGlobal ? undefined : replica.name, start: world.now, end })
    if (kind !== "at a statement") note(kind)
    happen(trouble, end, replica, { ...around, clients, note })
  }
  clients.disturb = strike
  for (const fault of plan.faults) world.after(fault.at, () => strike(fault, replicas[fault.replica]!))
  const seen = new Seen(database, world)
  let nextLook = world.now
  const isTimeToLook = () => {
    if (world.now < nextLook || !database.isIdle) return false
    nextLook = world.now + intervalMillis
    return true
  }
  /** If nothing happens, lets all replicas stand still until something is due, as a machine that is suspended. */
  const sleepTo = (end: number, awake = intervalMillis) => {
    const isQuiet =
      running === 0 &&
      receivers.isQuiet &&
      replicas.every(({ isUp }) => isUp) &&
      faults.every(({ end }) => end < world.now)
    if (!isQuiet) return
    const next = Math.min(end, planned.find((at) => at > world.now) ?? Infinity, nextDue(database))
    if (next < world.now + 2 * intervalMillis) return
    // A machine that is suspended for a day has prepared the range of the next events before.
    if (next - world.now > seenMillis && !hasNextRange(database)) return
    if (next - world.now > seenMillis) seen.look()
    world.note("world", `sleeps for ${((next - world.now) / 1000).toFixed(0)} s: nothing is due`)
    for (const replica of replicas) replica.pause()
    nextLook = next + awake
    world.after(next - awakeMillis - world.now, () => replicas.forEach((replica) => replica.resume()))
  }
  await world.run(() => {
    if (world.now < calmAt && isTimeToLook()) sleepTo(calmAt)
    return world.now >= calmAt
  })

  world.note("world", "is calm: no more faults")
  receivers.calmDown()
  issuers.isDown = false
  for (const replica of replicas) {
    replica.restoreNetwork()
    replica.resume()
    if (replica.state === "dead") replica.start()
  }
  const earliest = calmAt + (clients.tenants.some((one) => one.schedules.length > 0) ? schedulesMillis : startMillis)
  let rows: History["rows"] | undefined
  await world.run(() => {
    if (!isTimeToLook()) return false
    const isOver = running === 0 && world.now > earliest && hasSettled(database) && isTidy(database, plan)
    const latest = calmAt + settleMillis + (isTidy(database, plan) ? 0 : tidyMillis)
    if (!isOver && world.now < latest) {
      // A pass of retention is nothing that is due: the replicas wake for it now and then.
      if (isTidy(database, plan)) sleepTo(world.now < earliest ? earliest : latest)
      else sleepTo(world.now < earliest ? earliest : Math.min(latest, world.now + 300_000), passMillis)
      return false
    }
    rows = seen.look()
    return true
  })
  const history: History = {
    errors: world.log.filter(({ what }) => what.startsWith("logs ERROR")),
    unanswered: world.log.filter(({ what }) => what.startsWith("logs WARN The database did not answer within")),
    done: clients.done,
    received: receivers.received,
    faults,
    rows: rows!,
    removed: seen.removed,
    retentionDays: plan.retentionDays,
    calmAt,
    endAt: world.now,
  }
  return { history, answered: clients.answered }
}

/** How long the sleep is before which the rows are looked at. */
const seenMillis = 3_600_000
/** The tables from which retention removes rows. */
const expiring = ["events", "deliveries", "jobs"]

/** The rows of the database, also those that have been removed since they were seen. */
class Seen {
  readonly removed: Array<Removed> = []
  readonly #database: SimulatedDatabase
  readonly #world: World
  readonly #last = new Map<string, History["rows"][string]>()

  constructor(database: SimulatedDatabase, world: World) {
    this.#database = database
    this.#world = world
  }

  look(): History["rows"] {
    return Object.fromEntries(
      Object.entries(queries).map(([name, sql]) => {
        const rows = this.#database.rows(sql)
        if (!expiring.includes(name)) return [name, rows]
        const ids = new Set(rows.map(({ id }) => id))
        for (const row of this.#last.get(name) ?? [])
          if (!ids.has(row["id"] as string)) this.removed.push({ table: name, row, at: this.#world.now })
        this.#last.set(name, rows)
        return [name, [...this.removed.filter(({ table }) => table === name).map(({ row }) => row), ...rows]]
      }),
    )
  }
}

/** When something is due next that workers do by themselves, in true time. */
const nextDue = (database: SimulatedDatabase) => {
  const [row] = database.rows(`SELECT extract(epoch FROM min(at)) * 1000 AS due FROM (
    SELECT min(due_at) AS at FROM pending_deliveries WHERE NOT backlogged
    -- What a worker has claimed it may be about to send, and nobody would stand still then.
    UNION ALL SELECT now() WHERE EXISTS (SELECT FROM pending_deliveries WHERE claim_id IS NOT NULL AND lease_until > now())
    -- What waits for its turn may be sent as soon as a worker looks; a retry keeps its place until its time.
    UNION ALL SELECT min(coalesce(lease_until, now())) FROM pending_deliveries WHERE backlogged
    UNION ALL SELECT min(lease_expires_at) FROM jobs WHERE status = 'running'
    UNION ALL SELECT min(run_at) FROM jobs WHERE status = 'queued' AND delayed
    UNION ALL SELECT min(expires_at) FROM jobs WHERE status = 'queued' AND attempt = 0
    UNION ALL SELECT min(next_at) FROM job_schedules
    UNION ALL SELECT min(created_at) FROM sweeps) AS things`)
  const due = row!["due"]
  return due === null || due === undefined ? Infinity : Number(due) - database.wallMillis() + database.world.now
}

/**
 * Whether a range of events begins later than now, so that what is made today does not expire with what is made then.
 */
const hasNextRange = (database: SimulatedDatabase) =>
  database.rows(`SELECT 1 FROM pg_class WHERE relkind = 'r' AND relname LIKE 'events\\_0%'
    AND upper(substr(relname, 8)) > '${idAt(database.wallMillis())}' LIMIT 1`).length > 0

/** Whether nothing is left that retention has to remove: a range is an hour for twelve, a pass of orgs takes longer. */
const isTidy = (database: SimulatedDatabase, { retentionDays: days }: Plan) => {
  const isOld = (table: string, time: string) => `SELECT 1 FROM ${table} t WHERE ${time} < now() - CASE
    WHEN EXISTS (SELECT FROM orgs WHERE id = t.org_id AND retention_days < ${days}) THEN interval '24.5 hours'
    ELSE interval '${26 * days} hours' END`
  return (
    database.rows(`${isOld("events", "created_at")} UNION ALL ${isOld("finished_jobs", "finished_at")} LIMIT 1`)
      .length === 0
  )
}

/** Whether nothing is left to do: no delivery is pending, no job runs, no sweep is under way. */
const hasSettled = (database: SimulatedDatabase) =>
  database.rows(`SELECT 1 FROM pending_deliveries UNION ALL SELECT 1 FROM jobs WHERE status = 'running'
    UNION ALL SELECT 1 FROM sweeps LIMIT 1`).length === 0

const standStill = (world: World, replica: Replica, millis: number) => {
  replica.pause()
  world.note(replica.name, "stands still")
  world.after(millis, () => {
    replica.resume()
    world.note(replica.name, "continues")
  })
}

/** Lets a fault happen, until a time. */
const happen = (
  { kind, moment = "commit", seed, trap }: Trouble,
  end: number,
  replica: Replica,
  {
    clients,
    database,
    issuers,
    linkMillis,
    note,
    receivers,
    world,
  }: ReturnType<typeof surroundingsOf> & { readonly clients: Clients; readonly note: (kind: string) => void },
) => {
  const dice = new Dice(seed)
  const millis = end - world.now
  const { link } = replica
  switch (kind) {
    case "crash":
      replica.crash()
      return world.after(millis, () => replica.state === "dead" && replica.start())
    case "pause":
      return standStill(world, replica, millis)
    case "clock step":
      replica.clock.skewMillis = dice.int(-90_000, 90_000)
      return world.note(replica.name, `its clock steps to ${replica.clock.skewMillis} ms off`)
    case "database clock step":
      database.skewMillis = dice.int(-30_000, 30_000)
      return world.note("database", `its clock steps to ${database.skewMillis} ms off`)
    case "cut":
      return replica.cut(dice.pick([0.3, 1]))
    case "silence":
      world.note(replica.name, `hears nothing of the database for ${millis} ms`)
      link.silentUntil = end
      return
    case "refuse":
      world.note(replica.name, `gets no new connections for ${millis} ms`)
      link.refusedUntil = end
      return replica.cut(1)
    case "cut at commit":
      link.cutAtCommit = dice.pick([0.05, 0.5])
      return world.after(millis, () => void (link.cutAtCommit = 0))
    case "lose notifications":
      link.cutAtNotify = dice.pick([0.1, 1])
      return world.after(millis, () => void (link.cutAtNotify = 0))
    case "slow database":
      link.delayMillis = dice.pick([50, 200, 400, 1_000, 3_000])
      return world.after(millis, () => void (link.delayMillis = linkMillis))
    case "receiver": {
      const urls = clients.tenants.flatMap(({ callbacks, endpoints }) => [
        ...endpoints.map((one) => one.url),
        ...callbacks.slice(-3),
      ])
      if (urls.length === 0) return
      const url = dice.pick(urls)
      const manner = dice.pick<Manner>(["slow", "hangs", "fails", "busy", "lies", "gone"])
      if (receivers.mannerOf(url) === "gone") return
      receivers.behave(url, manner)
      world.note(url, `behaves so from now on: ${manner}`)
      // Who fails for a while may say then that it is gone, while deliveries wait for it.
      const next = dice.chance(0.2) ? "gone" : "well"
      if (manner !== "gone")
        world.after(millis, () => {
          if (receivers.mannerOf(url) !== manner) return
          receivers.behave(url, next)
          if (next === "gone") world.note(url, "behaves so from now on: gone")
        })
      return
    }
    case "at a statement": {
      const what = trap ?? dice.pick(traps)
      const text = moments[moment]
      link.trap = {
        text,
        spring: (session) => {
          // Long after it was set it would be a fault of the calm time.
          if (world.now >= end) return
          note(what === "late answer" ? "slow database" : what)
          world.note(replica.name, `has run a statement with ${text.source}: ${what}`)
          if (what === "cut") return session.cut("before an answer")
          if (what === "late answer") return void (session.heldUntil = Math.min(end, world.now + dice.int(5, 3_000)))
          if (what === "silence") return void (link.silentUntil = end)
          const left = end - world.now
          world.after(0, () => {
            if (what === "pause") return standStill(world, replica, left)
            replica.crash()
            world.after(Math.min(left, 20_000), () => replica.state === "dead" && replica.start())
          })
        },
      }
      return
    }
    case "issuer":
      issuers.isDown = true
      return world.after(millis, () => void (issuers.isDown = false))
  }
}
