import { Effect } from "effect"
import { readdirSync, readFileSync } from "node:fs"
import { SimulatedDatabase } from "../database.ts"
import { compiled } from "../engine.ts"
import { Issuers, type Manner, Receivers } from "../network.ts"
import { adminToken, type Answer, noAnswer, Replica } from "../replica.ts"
import { forgetReplicas, migrated, rightClock } from "../simulation.ts"
import { Actor, Dice, epochMillis, World } from "../world.ts"

/** A request, and who sends it: the administrator, an API key, a session of a portal, or a run of CI. */
export interface Said {
  readonly as: string
  readonly method: string
  readonly path: string
  readonly body?: unknown
  readonly idempotencyKey?: string
}
/** What is said next, or how many seconds pass. */
export type Step = Said | { readonly wait: number }

/**
 * Dice that always show the middle, so that nothing in the world depends on how often they are thrown. Ids and keys
 * differ, but for their first bytes, from which the service takes its jitter.
 */
class EvenDice extends Dice {
  override next() {
    return 0.5
  }
  override randomize(bytes: Uint8Array) {
    return super.randomize(bytes).fill(0x80, 0, 4)
  }
  override fork() {
    return new EvenDice(this.bits())
  }
}

/** How long background work has after each request, in milliseconds. */
const pauseMillis = 2_500
/** How long a start, or an answer, may take, in milliseconds. */
const longestMillis = 60_000
/** What the service does awake before and after a long wait, in milliseconds. */
const awakeMillis = 20_000

/** Names what is different in each run: ids, keys and cursors by their number, times by their seconds. */
class Names {
  readonly #names = new Map<string, string>()
  readonly #values = new Map<string, string>()
  readonly #counts = new Map<string, number>()
  readonly #nowMillis: () => number

  constructor(nowMillis: () => number) {
    this.#nowMillis = nowMillis
  }

  #name(kind: string, value: string) {
    const known = this.#names.get(value)
    if (known !== undefined) return known
    const count = (this.#counts.get(kind) ?? 0) + 1
    this.#counts.set(kind, count)
    const name = `<${kind} ${count}>`
    this.#names.set(value, name)
    this.#values.set(name, value)
    return name
  }

  /** A text of the service with names. */
  hide(text: string) {
    const member = (name: string, value: string, quote: string) =>
      `${quote}${name}${quote}:${quote}${this.#name(name, value)}${quote}`
    return text
      .replaceAll(/https:\/\/[^"]*?\/console\/portal#([\w.-]+)/g, (_, token: string) => this.#name("portal", token))
      .replaceAll(secret, (_, quote: string, name: string, value: string) => member(name, value, quote))
      .replaceAll(/wh(?:pk|sec)_[\w+/=]+/g, (key) => this.#name("secret", key))
      .replaceAll(/\b\w+_[A-Za-z0-9]{40,}\b/g, (key) => this.#name("key", key))
      .replaceAll(/\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b/g, (id) => this.#name("id", id))
      .replaceAll(/\b[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b/g, (id) => this.#name("uuid", id))
      .replaceAll(
        /\d{4}-\d\d-\d\dT\d\d:\d\d(?::[\d.]+)?Z/g,
        (time) => `<at ${seconds(Date.parse(time) - epochMillis)}>`,
      )
      .replaceAll(/"((?:duration|lag|age|latency|p50|p99)\w*)":[\d.]+/gi, '"$1":0')
  }

  /** A text of a conversation with the values of this run. */
  show(text: string) {
    return text
      .replaceAll(/<in (-?\d+)>/g, (_, after: string) =>
        new Date(epochMillis + Math.floor(this.#nowMillis() / 1_000) * 1_000 + Number(after) * 1_000).toISOString(),
      )
      .replaceAll(/<\w+ \d+>/g, (name) => this.#values.get(name) ?? name)
  }
}

const folder = new URL("./recorded/", import.meta.url)
/** Where a conversation is written down. */
export const fileOf = (name: string) => new URL(`${name}.txt`, folder)
/** The names of those that are written down: what each is about, and a number. */
export const recorded = () =>
  readdirSync(folder)
    .map((file) => file.replace(/\.txt$/, ""))
    .toSorted()

/** Members whose values nobody reads but as a whole, also within a text. */
const secret = /(\\?")(token|csrfToken|cursor|nextCursor|next_cursor|prefix|nonce)\1:\1([^"\\]+)\1/g

const seconds = (millis: number) => Math.floor(millis / 1_000)

/**
 * Talks to a service of one replica while nothing is wrong, and returns what was said and heard: requests with their
 * answers, and what receivers got. `next` has the next step; `undefined` ends the conversation.
 */
export const converse = async (
  next: () => Step | undefined,
  heard: (step: Said, answer: Answer) => void = () => {},
  seed = 1,
): Promise<ReadonlyArray<string>> => {
  const parts = { ...(await compiled), loadDataDir: await migrated() }
  const world = new World(seed, new EvenDice(seed))
  const lines: Array<string> = []
  return world.live(async () => {
    const database = await SimulatedDatabase.open(world, parts)
    const receivers = new Receivers(world)
    receivers.failing = 0
    const issuers = new Issuers()
    const replica = new Replica(
      { world, database, receivers, issuers, retentionDays: 1, linkMillis: 1 },
      "r1",
      rightClock(),
    )
    const client = new Actor(world, "clients", rightClock())
    replica.start()
    await world.run(() => replica.isUp || world.now > longestMillis)
    if (!replica.isUp) throw new Error(`The service does not start: ${world.log.at(-1)?.what}`)
    const names = new Names(() => world.now)
    let told = 0
    const pass = async (millis: number) => {
      const end = world.now + millis
      world.after(millis, () => {})
      await world.run(() => world.now >= end)
    }
    const listen = () => {
      const got = receivers.received.slice(told).map(({ body, headers, url }) => {
        const own = ["x-tenant", "authorization", "content-type"].flatMap((name) => headers[name] ?? [])
        const id = names.hide(headers["webhook-id"] ?? headers["svix-id"] ?? "")
        return `* ${url} ${own.join(" ")} ${id} ${names.hide(body)}`
      })
      told = receivers.received.length
      lines.push(...got.toSorted())
    }
    const ask = async (step: Said) => {
      const call = callOf(step, names, issuers, world)
      for (const [url] of JSON.stringify(step.body ?? "").matchAll(/https:\/\/(\w+)\.example[^"]*/g)) {
        const manner = new URL(url).hostname.split(".")[0]!
        receivers.behave(url, manner as Manner)
      }
      let answer: Answer | undefined
      client.enqueue(() =>
        Effect.runForkWith(client.services)(replica.call(client, call)).addObserver((exit) => {
          if (exit._tag === "Success") answer = exit.value
          else world.fail(exit.cause)
        }),
      )
      const end = world.now + longestMillis
      world.after(longestMillis, () => {})
      await world.run(() => answer !== undefined || world.now >= end)
      const { body, status } = answer ?? noAnswer
      const text = names.hide(JSON.stringify(body ?? null))
      lines.push(`< ${status ?? "no answer"} ${text}`)
      heard(step, { status, body: JSON.parse(text) })
    }
    for (let step = next(); step !== undefined; step = next()) {
      lines.push(`> ${written(step)}`)
      if ("wait" in step) {
        const millis = step.wait * 1_000
        if (millis <= 3 * awakeMillis) await pass(millis)
        else {
          await pass(awakeMillis)
          replica.pause()
          await pass(millis - 2 * awakeMillis)
          replica.resume()
          await pass(awakeMillis)
        }
      } else {
        await ask(step)
        await pass(pauseMillis)
      }
      listen()
    }
    for (const { what } of world.log) if (what.startsWith("logs ERROR")) lines.push(`! ${names.hide(what)}`)
    await database.close()
    forgetReplicas()
    return lines
  })
}

const callOf = (step: Said, names: Names, issuers: Issuers, world: World) => {
  const { as, idempotencyKey, method } = step
  const [kind, ...rest] = as.split(" ")
  const tokens: Readonly<Record<string, () => string>> = {
    admin: () => adminToken,
    bearer: () => names.show(rest.join(" ")),
    run: () => {
      const [owner, name, runId] = rest as [string, string, string]
      return issuers.token({ owner, name, runId: Number(runId) }, epochMillis + world.now)
    },
  }
  const token = tokens[kind!]?.()
  const authorization = token === undefined ? { "x-api-key": names.show(as) } : { authorization: `Bearer ${token}` }
  return {
    method,
    path: names.show(step.path),
    headers: { ...authorization, ...(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }) },
    ...(step.body === undefined ? {} : { body: names.show(JSON.stringify(step.body)) }),
  }
}

const written = (step: Step) =>
  "wait" in step
    ? `wait ${step.wait}`
    : JSON.stringify([step.as, step.method, step.path, step.idempotencyKey ?? null, step.body])

/** How many seconds later or earlier something may happen than it was written down. */
const toleratedSeconds = 3

/** Whether a line says the same as the one that was written down. */
const isSame = (line: string | undefined, known: string | undefined) => {
  if (line === undefined || known === undefined || line === known) return line === known
  const [times, knownTimes] = [line, known].map((text) =>
    [...text.matchAll(/<at (-?\d+)>/g)].map(([, at]) => Number(at)),
  )
  const [rest, knownRest] = [line, known].map((text) => text.replaceAll(/<at -?\d+>/g, "<at>"))
  return rest === knownRest && times!.every((at, n) => Math.abs(at - knownTimes![n]!) <= toleratedSeconds)
}

/** The first thing that differs from how a conversation was before: what was asked, and both lines. */
export const difference = (lines: ReadonlyArray<string>, known: ReadonlyArray<string>) => {
  const at = known.findIndex((line, n) => !isSame(lines[n], line))
  const from = at < 0 && lines.length > known.length ? known.length : at
  if (from < 0) return undefined
  const asked = known.slice(0, from + 1).findLast((line) => line.startsWith("> "))
  return `After ${asked}\nwas: ${known[from] ?? "nothing"}\nis:  ${lines[from] ?? "nothing"}`
}

/** The lines of a conversation that was written down. */
const linesOf = (name: string) => readFileSync(fileOf(name), "utf8").trimEnd().split("\n")

/** Holds a conversation that was written down once more, with other ids, and returns its lines. */
export const again = (name: string, seed?: number) => {
  const steps = [...stepsOf(linesOf(name))]
  return converse(() => steps.shift(), undefined, seed)
}

/** Holds a conversation that was written down once more, and returns the first difference. */
export const compare = async (name: string, seed = 2) => difference(await again(name, seed), linesOf(name))

/** The steps of a conversation that was written down. */
const stepsOf = (lines: ReadonlyArray<string>): ReadonlyArray<Step> =>
  lines
    .filter((line) => line.startsWith("> "))
    .map((line) => {
      const text = line.slice(2)
      if (text.startsWith("wait ")) return { wait: Number(text.slice(5)) }
      const [as, method, path, idempotencyKey, body] = JSON.parse(text)
      return {
        as,
        method,
        path,
        ...(idempotencyKey === null ? {} : { idempotencyKey }),
        ...(body === null ? {} : { body }),
      }
    })
