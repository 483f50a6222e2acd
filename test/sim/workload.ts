import { Context, Effect, Fiber } from "effect"
import { hash } from "node:crypto"
import type { Body, Done, KeyedTry, Try } from "./history.ts"
import { baseUrl, codeOf, type Group, groups, type Issuers, orgsOfPeople, type Receivers } from "./network.ts"
import type { Plan, Trouble } from "./plan.ts"
import { adminToken, type Answer, type Call, noAnswer, type Replica, type Surroundings } from "./replica.ts"
import { type Actor, type Dice, epochMillis, type World } from "./world.ts"

/** How often each operation comes, compared with the others. */
export const weights = {
  createKey: 4,
  validateKey: 14,
  updateKey: 3,
  changeLimits: 1,
  useSession: 1,
  signInPeople: 0.5,
  rotateKey: 1,
  deleteKey: 2,
  revokeKey: 2,
  outOfTouch: 1,
  changeRole: 0.5,
  importKeys: 0.5,
  exchange: 0.5,
  exhaust: 0.5,
  addCredits: 0.5,
  createEndpoint: 2,
  updateEndpoint: 1,
  deleteEndpoint: 0.5,
  publish: 10,
  lateRecord: 0.1,
  createJob: 5,
  createJobs: 1,
  work: 8,
  lateWorker: 2,
  lastLease: 1,
  duel: 2,
  cancelJob: 0.5,
  retryJob: 0.7,
  sweepJobs: 1,
  uniqueJobs: 1,
  limitWorkflow: 0.3,
  policies: 0.4,
  createSchedule: 0.7,
  deleteSchedule: 0.2,
  retryDelivery: 0.7,
  recover: 0.5,
  resend: 0.5,
  createOrgs: 0.3,
  deleteOrg: 0.5,
  endWhileSending: 0.1,
  createProject: 1,
  deleteProject: 0.7,
  register: 2,
  promote: 0.7,
  storeDocs: 0.3,
  portal: 0.7,
  repeat: 2,
  lists: 2,
  look: 0.7,
  describeType: 0.2,
  publishStrictly: 0.3,
  limitOrg: 0.3,
  retryAtLimit: 0.2,
  runByHand: 0.3,
  uniqueWithin: 0.3,
  uniqueQueued: 0.3,
  claimInTurn: 0.3,
  alertOnGone: 0.2,
  readAudit: 0.1,
}
export type OperationName = keyof typeof weights

/** How often the clients and receivers of a run do something: a share of 1. */
export interface Habits {
  /** Endpoints that want their events in order. */
  readonly ordered: number
  /** Endpoints with a limit per second. */
  readonly limited: number
  /** Publishes of several events at once. */
  readonly batches: number
  /** Requests with an idempotency key that someone else sends at the same time. */
  readonly twins: number
  /** Attempts that fail at a receiver that behaves well. */
  readonly failing: number
  /** Endpoints whose receiver takes seconds to answer. */
  readonly slow: number
  /** Endpoints with channels, and events with some. */
  readonly narrow: number
}

export const usualHabits: Habits = {
  ordered: 0.3,
  limited: 0.2,
  batches: 0.2,
  twins: 0.15,
  failing: 0.03,
  slow: 0.05,
  narrow: 0.15,
}

/** An API key that a client knows. */
interface KnownKey {
  readonly id: string
  readonly key: string
  readonly isLimited: boolean
  readonly projectId: string | undefined
  /** Whether it was made elsewhere: it is validated like others, and signs nobody in. */
  readonly isImported?: boolean
}

/** What the clients of one tenant know of it. Its name is in every text that it sends. */
export interface Tenant {
  readonly name: string
  readonly isShortLived: boolean
  orgId: string
  key: string
  isDeleted: boolean
  readonly keys: Array<KnownKey>
  readonly endpoints: Array<{ readonly id: string; readonly url: string }>
  readonly jobs: Array<string>
  readonly schedules: Array<string>
  readonly projects: Array<string>
  /** URLs that get the event of one job. */
  readonly callbacks: Array<string>
  /** Projects that CI runs have made. */
  readonly deployed: Set<string>
  lastRun: number
  lastRole: number
}

export const tenantOf = (name: string, isShortLived = false): Tenant => ({
  name,
  isShortLived,
  orgId: "",
  key: "",
  isDeleted: false,
  keys: [],
  endpoints: [],
  jobs: [],
  schedules: [],
  projects: [],
  callbacks: [],
  deployed: new Set(),
  lastRun: 1_000,
  lastRole: 0,
})

/** How often a client sends a request again that was not answered, or answered with 5xx. */
const maxTries = 60
/** How long a client waits for an answer. A claim may wait for jobs this long. */
const patienceMillis = 35_000

/** A request with an idempotency key. */
interface Keyed {
  readonly tenant: Tenant
  readonly at: number
  readonly call: Call
  readonly tries: Array<KeyedTry>
}

/** What must be the same in each answer to a request with an idempotency key; of a field of the body, what was made. */
const answerOf = ({ headers }: Call, { body, status }: Answer) =>
  status !== 200
    ? undefined
    : headers["idempotency-key"] === undefined
      ? (body.event_id ?? body.job_id)
      : JSON.stringify(body)

/** The replica that the requests of an operation go to, while it lives; else any. */
const Asked = Context.Reference<Replica | undefined>("gatehouse/test/sim/Asked", { defaultValue: () => undefined })
const at = (replica: Replica) => Effect.provideService(Asked, replica)

/** The clients of all tenants, which remember everything that they did. */
export class Clients {
  readonly world: World
  readonly actor: Actor
  readonly replicas: ReadonlyArray<Replica>
  readonly issuers: Issuers
  readonly receivers: Receivers
  readonly done: Array<Done> = []
  /** The requests with idempotency keys that were answered with success. */
  readonly keyed: Array<Keyed> = []
  readonly tenants: Array<Tenant> = []
  readonly habits: Habits
  /** How long the service keeps records. */
  readonly retentionDays: number
  /** The requests that an operation of the API has answered, also with a refusal. */
  readonly answered = new Set<string>()
  /** Lets something go wrong at a replica. */
  disturb: (trouble: Trouble, replica: Replica) => void = () => {}
  #made = 0

  constructor(
    { issuers, receivers, world }: Pick<Surroundings, "issuers" | "receivers" | "world">,
    actor: Actor,
    replicas: ReadonlyArray<Replica>,
    plan: Plan,
  ) {
    this.world = world
    this.receivers = receivers
    this.habits = plan.habits
    this.retentionDays = plan.retentionDays
    this.issuers = issuers
    this.actor = actor
    this.replicas = replicas
  }

  /** Two replicas that run; `undefined` if there are none. */
  pair(dice: Dice): readonly [Replica, Replica] | undefined {
    const up = this.replicas.filter(({ isUp }) => isUp)
    if (up.length < 2) return undefined
    const one = dice.pick(up)
    return [one, dice.pick(up.filter((other) => other !== one))]
  }

  /** A name that no other thing has. */
  name(tenant: Tenant, what: string) {
    return `${tenant.name}-${what}${++this.#made}`
  }

  /** Sends a request until it is answered, as the documentation asks. Remembers it. */
  readonly send = Effect.fnUntraced(
    { self: this },
    function* (
      dice: Dice,
      kind: string,
      tenant: Tenant,
      request: Omit<Call, "headers"> & { readonly headers?: Readonly<Record<string, string>> },
      args: Readonly<Record<string, unknown>> = {},
      { isCreation = false, tries: most = maxTries } = {},
    ) {
      const { world } = this
      const id = `${kind}-${++this.#made}`
      const headers = {
        "x-request-id": id,
        ...(isCreation ? { "idempotency-key": id } : {}),
        ...request.headers,
      }
      const call: Call = { ...request, headers }
      const isKeyed = isCreation || hasOwnKey(call)
      const tries: Array<Try> = []
      const keyed: Array<KeyedTry> = []
      // Someone else sends it at the same time.
      const twin =
        isKeyed && dice.chance(this.habits.twins)
          ? yield* Effect.forkChild(Effect.delay(this.sendKeyed(dice, call, keyed), dice.int(0, 40)))
          : undefined
      const start = world.now
      const asked = yield* Asked
      let answer: Answer = noAnswer
      while (tries.length < most) {
        const up = this.replicas.filter(({ state }) => state !== "dead")
        const any = up.length === 0 ? undefined : dice.pick(up)
        const replica = asked !== undefined && up.includes(asked) ? asked : any
        if (replica === undefined) {
          yield* Effect.sleep(500)
          if (world.now - start > 600_000) break
          continue
        }
        const began = world.now
        answer = yield* this.#ask(replica, call)
        const { status } = answer
        const each = { replica: replica.name, start: began, end: world.now, status }
        tries.push(each)
        if (isKeyed) keyed.push({ ...each, answer: answerOf(call, answer), isOther: false })
        const isRepeated = status === 409 && isCreation && isInProgress(answer)
        if (status !== undefined && status < 500 && !isRepeated) break
        yield* Effect.sleep(dice.int(50, 2_000))
      }
      const isOver = answer.status !== undefined && answer.status < 500
      if (isOver && !notOurs.has(answer.status!)) this.answered.add(`${call.method} ${call.path}`)
      const end = isOver ? world.now : Infinity
      if (twin !== undefined) yield* Fiber.join(twin)
      if (isKeyed && answer.status === 200) {
        this.keyed.push({ tenant, at: start, call, tries: keyed })
        if (dice.chance(0.15)) yield* this.sendKeyed(dice, call, keyed)
      }
      const done: Done = {
        kind,
        tenant: tenant.name,
        args,
        start,
        end,
        status: answer.status,
        body: answer.body,
        tries,
        keyed,
      }
      this.done.push(done)
      const often = tries.length > 1 ? ` after ${tries.length} tries` : ""
      const last = tries.at(-1)?.replica ?? "nobody"
      world.note(`${tenant.name}`, `${kind} ${shown(args)} at ${last}: ${answer.status ?? "no answer"}${often}`)
      return Object.assign(done, { cookie: answer.cookie })
    },
  )

  #ask(replica: Replica, call: Call) {
    const orElse = () => Effect.succeed(noAnswer)
    return replica.call(this.actor, call).pipe(Effect.timeoutOrElse({ duration: patienceMillis, orElse }))
  }

  /** Sends a request with an idempotency key once more, or another request with its key. */
  readonly sendKeyed = Effect.fnUntraced(
    { self: this },
    function* (dice: Dice, call: Call, tries: Array<KeyedTry>, isOther = false) {
      const up = this.replicas.filter(({ isUp }) => isUp)
      if (up.length === 0) return
      const replica = dice.pick(up)
      const start = this.world.now
      const body = isOther ? Object.fromEntries(Object.entries(call.body as object).toReversed()) : call.body
      const answer = yield* this.#ask(replica, { ...call, body })
      const { status } = answer
      const { now: end } = this.world
      tries.push({ replica: replica.name, start, end, status, answer: answerOf(call, answer), isOther })
    },
  )

  /** The administrator's request. */
  admin(
    dice: Dice,
    kind: string,
    tenant: Tenant,
    method: string,
    path: string,
    body?: unknown,
    args = {},
    creates = false,
  ) {
    const headers = { authorization: `Bearer ${adminToken}` }
    return this.send(dice, kind, tenant, { method, path, headers, body }, args, { isCreation: creates })
  }

  /** A request of the tenant's own key. */
  own(dice: Dice, kind: string, tenant: Tenant, path: string, body: unknown, args = {}, creates = false) {
    const headers = { "x-api-key": tenant.key }
    return this.send(dice, kind, tenant, { method: "POST", path: `/v1/${path}`, headers, body }, args, {
      isCreation: creates,
    })
  }

  /** Makes the org of a tenant, and its key. */
  readonly found = Effect.fnUntraced({ self: this }, function* (dice: Dice, tenant: Tenant) {
    this.tenants.push(tenant)
    const org = yield* this.admin(dice, "createOrg", tenant, "POST", "/api/v0/orgs", { name: tenant.name }, {}, true)
    if (org.status !== 200) return
    tenant.orgId = org.body.orgId
    if (this.retentionDays > 1 && dice.chance(0.6)) {
      const path = `/api/v0/orgs/${tenant.orgId}`
      yield* this.admin(dice, "setRetention", tenant, "PATCH", path, { retentionDays: 1 }, { orgId: tenant.orgId })
    }
    const name = this.name(tenant, "root")
    const key = yield* this.admin(
      dice,
      "createRootKey",
      tenant,
      "POST",
      `/api/v0/orgs/${tenant.orgId}/keys`,
      { name },
      {},
      true,
    )
    if (key.status === 200) tenant.key = key.body.key
  })

  /** Runs a planned operation. */
  run(kind: OperationName, tenant: Tenant, dice: Dice): Effect.Effect<unknown> {
    if (tenant.key === "" || (tenant.isDeleted && kind !== "validateKey")) return Effect.void
    return operations[kind](this, tenant, dice)
  }
}

/** Answers that may come from no operation. */
const notOurs: ReadonlySet<number> = new Set([400, 404, 405])

/** Whether a new event or job has a key of its own. */
const hasOwnKey = ({ body }: Call) =>
  (body as { readonly idempotency_key?: string } | undefined)?.idempotency_key !== undefined

const isInProgress = ({ body }: Answer) => /progress/.test(body?.error ?? body?.message ?? "")

const shown = (args: Readonly<Record<string, unknown>>) =>
  Object.entries(args)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" ")

/** Signs the deliveries of all endpoints and callbacks. */
export const signingSecret = "secret of the simulation"

type Operation = (clients: Clients, tenant: Tenant, dice: Dice, id?: string) => Effect.Effect<unknown>

/** Picks one of the tenant's things, the newer the likelier. */
const oneOf = <A>(dice: Dice, things: ReadonlyArray<A>): A | undefined =>
  things.length === 0 ? undefined : things[things.length - 1 - Math.floor(dice.next() ** 2 * things.length)]

const createKey: Operation = Effect.fnUntraced(function* (clients, tenant, dice, inProject) {
  const name = clients.name(tenant, "key")
  const limit = inProject === undefined && dice.chance(0.3) ? dice.pick([3, 20, 150]) : undefined
  const settings =
    limit === undefined
      ? {}
      : dice.chance(0.5)
        ? { credits: { remaining: limit } }
        : { rateLimit: { limit, window: dice.pick([10, 60]) } }
  const projectId = inProject ?? (dice.chance(0.3) ? oneOf(dice, tenant.projects) : undefined)
  const done =
    projectId === undefined
      ? yield* clients.admin(
          dice,
          "createKey",
          tenant,
          "POST",
          `/api/v0/orgs/${tenant.orgId}/keys`,
          { name, ...settings },
          { name, ...settings },
          true,
        )
      : yield* clients.admin(
          dice,
          "createKey",
          tenant,
          "POST",
          "/api/v0/keys",
          { name, projectId, ...settings },
          { name, ...settings, projectId },
          true,
        )
  const { id, key } = done.body ?? {}
  if (done.status === 200) tenant.keys.push({ id, key, isLimited: limit !== undefined, projectId })
})

/** Makes a key that no other operation uses. */
const keyOf = Effect.fnUntraced(function* (clients: Clients, tenant: Tenant, dice: Dice, settings: object = {}) {
  const asked = { name: clients.name(tenant, "key"), ...settings }
  const path = `/api/v0/orgs/${tenant.orgId}/keys`
  const { body, status } = yield* clients.admin(dice, "createKey", tenant, "POST", path, asked, asked, true)
  const known: KnownKey = { id: body?.id, key: body?.key, isLimited: true, projectId: undefined }
  return status === 200 ? known : undefined
})

/** Validates a key, as a gateway does, or lets a proxy ask. */
const validate = (clients: Clients, tenant: Tenant, dice: Dice, { id, key }: KnownKey) => {
  const headers = { authorization: `Bearer ${adminToken}` }
  const call = dice.chance(0.2)
    ? { method: dice.pick(["GET", "POST"]), path: "/api/v0/keys/authorize", headers: { "x-api-key": key } }
    : { method: "POST", path: "/api/v0/keys/validate", headers, body: { key } }
  return clients.send(dice, "validateKey", tenant, call, { keyId: id, orgId: tenant.orgId }, { tries: 3 })
}

const validateKey: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(dice, tenant.keys)
  if (known === undefined) return
  const times = known.isLimited || dice.chance(0.2) ? dice.int(2, 12) : 1
  const uses = Array.from({ length: times }, () => validate(clients, tenant, dice, known))
  yield* Effect.all(uses, { concurrency: dice.pick([1, 4]), discard: true })
})

/** A key ends while some use it, and is used for a while longer. */
const whileUsed = Effect.fnUntraced(function* (
  clients: Clients,
  tenant: Tenant,
  dice: Dice,
  known: KnownKey,
  end: Effect.Effect<unknown>,
) {
  const use = (millis: number) => Effect.delay(validate(clients, tenant, dice, known), millis)
  // Now and then no replica has it in memory.
  const isKnown = dice.chance(0.6)
  if (isKnown) yield* Effect.replicateEffect(validate(clients, tenant, dice, known), 6)
  const spread = isKnown ? 30 : dice.pick([30, 400])
  const near = Array.from({ length: 8 }, () => use(dice.int(0, spread)))
  const later = Array.from({ length: 12 }, () => use(dice.int(100, 26_000)))
  yield* Effect.all([Effect.delay(end, dice.int(2, 0.7 * spread)), ...near, ...later], {
    concurrency: "unbounded",
    discard: true,
  })
})

const revokeKey: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(dice, tenant.keys)
  if (known === undefined) return
  yield* whileUsed(clients, tenant, dice, known, endOf(clients, tenant, dice, known))
})

/** Deletes a key, or disables it. */
const endOf = (clients: Clients, tenant: Tenant, dice: Dice, { id: keyId }: KnownKey) => {
  const path = `/api/v0/orgs/${tenant.orgId}/keys/${keyId}`
  return dice.chance(0.7)
    ? clients.admin(dice, "deleteKey", tenant, "DELETE", path, undefined, { keyId })
    : clients.admin(dice, "updateKey", tenant, "PATCH", path, { enabled: false }, { keyId, enabled: false })
}

/** Why a replica does not hear of a change. The last one: what it has read before arrives after the news. */
const absences = { pause: 3, silence: 2, "lose notifications": 1, refuse: 1, "at a statement": 2 }

/** A change at one replica, and uses of what it changes at another one, which cannot hear of it for a while. */
const whileAway = Effect.fnUntraced(function* (
  clients: Clients,
  dice: Dice,
  use: Effect.Effect<unknown>,
  change: Effect.Effect<unknown>,
) {
  const pair = clients.pair(dice)
  if (pair === undefined) return
  const [away, other] = pair
  const millis = dice.int(4_500, 12_000)
  const kind = dice.weighted(absences)
  const used = at(away)(use)
  if (kind !== "at a statement") yield* used
  clients.disturb({ kind, moment: "lookUp", trap: "late answer", millis, seed: dice.bits() }, away)
  const uses = (times: number, least: number, most: number) =>
    Array.from({ length: times }, () => Effect.delay(used, dice.int(least, most)))
  // It is asked all the time, and most when it wakes.
  const all = [
    ...uses(1, 0, 0),
    ...uses(5, 0, millis),
    ...uses(6, millis - 1_000, millis),
    ...uses(5, millis, millis + 5_000),
  ]
  yield* Effect.all([...all, Effect.delay(at(other)(change), dice.int(10, 300))], {
    concurrency: "unbounded",
    discard: true,
  })
})

/** A key ends while a replica stands still or is cut off. */
const outOfTouch: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = yield* keyOf(clients, tenant, dice)
  if (known === undefined) return
  const use = Effect.suspend(() => validate(clients, tenant, dice, known))
  yield* whileAway(clients, dice, use, endOf(clients, tenant, dice, known))
})

/** A role changes while a replica stands still or is cut off: what it grants counts for the keys that have it. */
const changeRole: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  // Other orgs have roles of the same names.
  const name = `role${++tenant.lastRole}`
  const role = `${tenant.name} ${name}`
  const path = `/api/v0/orgs/${tenant.orgId}/roles/${name}`
  const put = (grants: boolean) => {
    const body = { permissions: [grants ? "files.read" : "files.write"] }
    return clients.admin(dice, "putRole", tenant, "PUT", path, body, { role, grants })
  }
  const remove = clients.admin(dice, "deleteRole", tenant, "DELETE", path, undefined, { role })
  if ((yield* put(true)).status !== 200) return
  const known = yield* keyOf(clients, tenant, dice, { roles: [name] })
  if (known === undefined) return
  const headers = { authorization: `Bearer ${adminToken}` }
  const call = { method: "POST", path: "/api/v0/keys/validate", headers }
  const body = { key: known.key, permissions: ["files.read"] }
  const use = clients.send(dice, "useRole", tenant, { ...call, body }, { role }, { tries: 3 })
  yield* whileAway(clients, dice, use, dice.chance(0.3) ? remove : put(false))
  if (dice.chance(0.5)) yield* whileAway(clients, dice, use, put(true))
})

/** Keys that were made elsewhere are imported, also by two at once, and used everywhere from then on. */
const importKeys: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const algorithm = dice.pick(["sha256", "sha512"])
  const names = Array.from({ length: dice.int(1, 3) }, () => clients.name(tenant, "imported"))
  const use = (id: string, key: string) =>
    validate(clients, tenant, dice, { id, key, isLimited: false, projectId: undefined })
  // A replica that has looked remembers that no key was imported.
  if (dice.chance(0.7)) yield* Effect.all(clients.replicas.map((one) => at(one)(use("", names[0]!))))
  const keys = names.map((name) => ({ name, algorithm, hash: hash(algorithm, name) }))
  const path = `/api/v0/orgs/${tenant.orgId}/keys/import`
  const send = clients.admin(dice, "import", tenant, "POST", path, { keys })
  const sent = yield* Effect.all(dice.chance(0.4) ? [send, send] : [send], { concurrency: 2 })
  for (const done of sent.filter(({ status }) => status === 200)) {
    for (const { id, index } of [...done.body.imported!, ...done.body.existing!]) {
      clients.done.push({ ...done, kind: "importKey", args: { name: names[index] }, body: { id } as Body })
      if (tenant.keys.some((one) => one.id === id)) continue
      tenant.keys.push({ id, key: names[index]!, isLimited: false, projectId: undefined, isImported: true })
      for (let n = 0; n < 4; n++) yield* Effect.delay(use(id, names[index]!), dice.pick([0, 0, 300, 3_000]))
    }
  }
})

/** Keys are exchanged for tokens, which others verify with what any replica shows. */
const exchange: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(
    dice,
    tenant.keys.filter(({ isLimited }) => !isLimited),
  )
  if (known === undefined) return
  const { id: keyId, key } = known
  const ask = { method: "GET", path: "/.well-known/jwks.json" }
  const show = clients.send(dice, "jwks", tenant, ask, {}, { tries: 3 })
  if (dice.chance(0.5)) yield* show
  const call = { method: "POST", path: "/api/v0/keys/token", body: { key } }
  const get = clients.send(dice, "exchange", tenant, call, { keyId, orgId: tenant.orgId }, { tries: 3 })
  const several = Array.from({ length: dice.int(1, 3) }, () => Effect.delay(get, dice.int(0, 40)))
  yield* Effect.all(several, { concurrency: 3 })
  yield* Effect.all([show, show, Effect.delay(show, dice.int(0, 5_000))], { concurrency: 2 })
})

/** A key with more credits than a replica leases at once is used up, also after a pause, or a change of its credits. */
const exhaust: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = yield* keyOf(clients, tenant, dice, { credits: { remaining: 150 } })
  if (known === undefined) return
  const path = `/api/v0/orgs/${tenant.orgId}/keys/${known.id}`
  const use = (times: number) =>
    Effect.all(
      Array.from({ length: times }, () => validate(clients, tenant, dice, known)),
      { concurrency: 8 },
    )
  yield* use(dice.int(20, 100))
  if (dice.chance(0.5)) {
    // While replicas have leased some of the old ones.
    yield* Effect.sleep(dice.pick([0, 0, 500, 3_000]))
    const change = { credits: { remaining: 110 } }
    yield* clients.admin(dice, "updateKey", tenant, "PATCH", path, change, { keyId: known.id, ...change })
    if (dice.chance(0.3)) yield* use(20)
    yield* Effect.sleep(11_000)
    return yield* use(130)
  }
  // Often idle for a moment, so that replicas return what they have leased; and nobody may hear that they have.
  const trouble = { kind: "at a statement", moment: "commit", trap: "cut", millis: 6_000, seed: 0 } as const
  if (dice.chance(0.4)) for (const replica of clients.replicas) clients.disturb(trouble, replica)
  yield* Effect.sleep(dice.pick([0, 3_000, 20_000]))
  for (let n = dice.int(0, 4); n > 0; n--) {
    yield* use(dice.int(5, 20))
    yield* Effect.sleep(dice.int(2_000, 5_000))
  }
  yield* use(dice.int(60, 100))
  yield* Effect.sleep(dice.pick([0, 20_000]))
  yield* use(60)
})

/** Several add credits to a key that is used up, at once. It gets all of them. */
const addCredits: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = yield* keyOf(clients, tenant, dice, { credits: { remaining: dice.int(1, 20) } })
  if (known === undefined) return
  const { id: keyId } = known
  const path = `/api/v0/orgs/${tenant.orgId}/keys/${keyId}`
  const uses = (times: number) =>
    Effect.all(
      Array.from({ length: times }, () => validate(clients, tenant, dice, known)),
      { concurrency: 4 },
    )
  yield* uses(dice.int(1, 25))
  const adds = Array.from({ length: dice.int(1, 4) }, () => {
    const change = { credits: { add: dice.int(1, 15) } }
    const add = clients.admin(dice, "updateKey", tenant, "PATCH", path, change, { keyId, ...change })
    return Effect.delay(add, dice.int(0, 30))
  })
  yield* Effect.all([...adds, uses(dice.int(0, 10))], { concurrency: "unbounded" })
  yield* Effect.sleep(dice.pick([0, 3_000, 12_000]))
  yield* uses(60)
})

const updateKey: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(dice, tenant.keys)
  if (known === undefined) return
  const enabled = dice.chance(0.5)
  yield* clients.admin(
    dice,
    "updateKey",
    tenant,
    "PATCH",
    `/api/v0/orgs/${tenant.orgId}/keys/${known.id}`,
    { enabled },
    {
      keyId: known.id,
      enabled,
    },
  )
})

/** Rotates a key, and waits for its replacement. */
const rotate = (clients: Clients, tenant: Tenant, dice: Dice, { id: keyId }: KnownKey, overlapSeconds: number) => {
  const path = `/api/v0/orgs/${tenant.orgId}/keys/${keyId}/rotate`
  const args = { keyId, overlapSeconds }
  return clients.admin(dice, "rotateKey", tenant, "POST", path, { overlapSeconds }, args, true)
}

/** A key that ends is rotated, with a grace period that would last longer. */
const rotateEnding = Effect.fnUntraced(function* (clients: Clients, tenant: Tenant, dice: Dice) {
  const until = clients.world.now + 200_000
  const settings = { expiresAt: new Date(epochMillis + until).toISOString() }
  const known = yield* keyOf(clients, tenant, dice, settings)
  if (known === undefined) return
  const { body, status } = yield* rotate(clients, tenant, dice, known, 600)
  const both = status === 200 ? [known, { ...known, id: body.id, key: body.key }] : [known]
  const use = Effect.suspend(() => validate(clients, tenant, dice, dice.pick(both)))
  yield* spread(
    dice,
    350_000,
    Array.from({ length: 12 }, () => use),
  )
})

const rotateKey: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  if (dice.chance(0.2)) return yield* rotateEnding(clients, tenant, dice)
  const known = oneOf(dice, tenant.keys)
  if (known === undefined) return
  const done = yield* rotate(clients, tenant, dice, known, dice.pick([0, 30]))
  if (done.status !== 200) return
  tenant.keys.push({ ...known, id: done.body.id, key: done.body.key })
  if (dice.chance(0.4)) {
    const path = `/api/v0/orgs/${tenant.orgId}/keys/${known.id}`
    yield* clients.admin(dice, "deleteKey", tenant, "DELETE", path, undefined, { keyId: known.id })
  }
})

const changeLimits: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(
    dice,
    tenant.keys.filter(({ isLimited }) => isLimited),
  )
  if (known === undefined) return
  const change = dice.chance(0.5)
    ? { credits: { remaining: dice.pick([2, 30]) } }
    : { rateLimit: { limit: dice.pick([2, 10, 120]), window: dice.pick([10, 60]) } }
  const path = `/api/v0/orgs/${tenant.orgId}/keys/${known.id}`
  const uses = () =>
    Effect.all(
      Array.from({ length: 4 }, () => validate(clients, tenant, dice, known)),
      { concurrency: 4 },
    )
  yield* Effect.all(
    [clients.admin(dice, "updateKey", tenant, "PATCH", path, change, { keyId: known.id, ...change }), uses()],
    { concurrency: 2 },
  )
  yield* uses()
})

/** Signs in with a key, and uses the session for a while. */
const useSession: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(
    dice,
    tenant.keys.filter(({ isImported }) => isImported !== true),
  )
  if (known === undefined) return
  const signIn = { method: "POST", path: "/api/v0/sessions", headers: { "x-api-key": known.key } }
  const { cookie } = yield* clients.send(dice, "signIn", tenant, signIn, { keyId: known.id }, { tries: 3 })
  if (cookie !== undefined) yield* useCookie(clients, tenant, dice, known, cookie)
})

/** Uses a session, which ends with the key that it stands for. */
const useCookie = Effect.fnUntraced(function* (
  clients: Clients,
  tenant: Tenant,
  dice: Dice,
  known: KnownKey,
  cookie: string,
) {
  const call = { method: "GET", path: "/api/v0/sessions/current", headers: { cookie } }
  const use = clients.send(dice, "useSession", tenant, call, { keyId: known.id }, { tries: 3 })
  const path = `/api/v0/orgs/${tenant.orgId}/keys/${known.id}`
  for (let n = 0; n < 8; n++) {
    yield* Effect.delay(use, dice.int(0, 1_500))
    if (n === 3 && dice.chance(0.5)) {
      yield* clients.admin(dice, "deleteKey", tenant, "DELETE", path, undefined, { keyId: known.id })
    }
  }
})

/** Somebody comes back from the identity provider, to any replica. */
const enter = Effect.fnUntraced(function* (
  clients: Clients,
  tenant: Tenant,
  dice: Dice,
  person: { readonly sub: string; readonly sid: string; readonly group: Group | "strangers"; readonly seconds: number },
) {
  const begin = { method: "GET", path: "/console/sign-in", headers: {} }
  const { body, cookie = "", status } = yield* clients.send(dice, "goToProvider", tenant, begin, {}, { tries: 5 })
  if (status !== 303) return []
  const asked = new URL(body.url).searchParams
  const { group, seconds, ...claims } = person
  const iat = Math.floor((epochMillis + clients.world.now) / 1000)
  const code = codeOf({ ...claims, groups: [group], nonce: asked.get("nonce"), iat, exp: iat + seconds })
  const back = new URLSearchParams({ state: asked.get("state")!, code })
  const call = { method: "GET", path: `/console/sign-in/callback?${back}`, headers: { cookie } }
  const session = clients.name(tenant, "session")
  const args = { ...claims, group, session, until: 1000 * (iat + seconds) - epochMillis }
  const kind = group === "strangers" ? "loseRole" : "enter"
  const entered = yield* clients.send(dice, kind, tenant, call, args, { tries: 5 })
  return entered.status === 303 ? [{ session, headers: { cookie: entered.cookie! } }] : []
})

interface PersonSession {
  readonly session: string
  readonly headers: { readonly cookie: string }
}

/** Somebody opens a portal link of their own, whose session ends with theirs. */
const openOwnPortal = Effect.fnUntraced(function* (
  clients: Clients,
  tenant: Tenant,
  dice: Dice,
  { headers, session }: PersonSession,
) {
  const path = "/api/v0/sessions/current"
  const own = yield* clients.send(dice, "usePerson", tenant, { method: "GET", path, headers }, { session })
  if (own.body?.csrfToken === undefined) return []
  const ask = { method: "POST", path: "/v1/portal/link", headers: { ...headers, "x-csrf-token": own.body.csrfToken } }
  const made = yield* clients.send(dice, "personLink", tenant, { ...ask, body: {} }, { session }, { tries: 3 })
  if (made.status !== 200) return []
  const token = made.body.url.slice(`${baseUrl}/console/portal#`.length)
  const call = { method: "POST", path: "/api/v0/sessions/portal", headers: {}, body: { token } }
  const { cookie, status } = yield* clients.send(dice, "openPortal", tenant, call, { link: token.slice(-8) })
  return status === 200 ? [{ session, headers: { cookie: cookie! } }] : []
})

/** Somebody signs in with the company's identity in two browsers, and uses both everywhere until their sessions end. */
const signInPeople: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const sub = clients.name(tenant, "person")
  const group = dice.pick(Object.keys(groups) as Array<Group>)
  const person = { sub, group, seconds: dice.pick([30, 600]) }
  const sids = [`${sub}-one`, `${sub}-two`] as const
  const [one, two] = [
    yield* enter(clients, tenant, dice, { ...person, sid: sids[0] }),
    yield* enter(clients, tenant, dice, { ...person, sid: sids[1] }),
  ]
  const sessions = [...one, ...two]
  if (sessions.length === 0) return
  const [portal] = group === "owners" ? yield* openOwnPortal(clients, tenant, dice, sessions[0]!) : []
  const read = (path: string, args: object, of?: PersonSession) =>
    Effect.suspend(() => {
      const { headers, session } = of ?? dice.pick(sessions)
      return clients.send(
        dice,
        "usePerson",
        tenant,
        { method: "GET", path, headers },
        { session, ...args },
        { tries: 3 },
      )
    })
  const use = Effect.suspend(() => {
    const orgId = dice.pick(orgsOfPeople)
    if (portal !== undefined && dice.chance(0.3)) return read("/api/v0/sessions/current", { isPortal: true }, portal)
    return dice.chance(0.5) ? read("/api/v0/sessions/current", {}) : read(`/api/v0/orgs/${orgId}`, { orgId })
  })
  const uses = (times: number) => Array.from({ length: times }, () => use)
  yield* spread(dice, 6_000, uses(8))
  const logOut = (whom: { readonly sub: string } | { readonly sid: string }) => {
    const body = `logout_token=${clients.issuers.logoutToken(whom, epochMillis + clients.world.now)}`
    const call = { method: "POST", path: "/console/sign-out", headers: {}, body }
    return clients.send(dice, "logOut", tenant, call, whom)
  }
  const leave = Effect.gen(function* () {
    const { headers, session } = dice.pick(sessions)
    const path = "/api/v0/sessions/current"
    const { body } = yield* clients.send(dice, "usePerson", tenant, { method: "GET", path, headers }, { session })
    if (body?.csrfToken === undefined) return
    const change = { method: "DELETE", path, headers: { ...headers, "x-csrf-token": body.csrfToken } }
    yield* clients.send(dice, "leave", tenant, change, { session })
  })
  const comeAs = (other: Group | "strangers") =>
    Effect.map(enter(clients, tenant, dice, { ...person, group: other, sid: `${sub}-three` }), (entered) =>
      sessions.push(...entered),
    )
  const end = dice.pick([
    Effect.suspend(() => logOut({ sub })),
    Effect.suspend(() => logOut({ sid: dice.pick(sids) })),
    leave,
    comeAs(dice.pick(["watchers", "owners", "strangers"])),
    Effect.void,
  ])
  yield* spread(dice, 400, [end, ...uses(8)])
  yield* spread(dice, dice.pick([2_000, 40_000]), uses(12))
})

const deleteKey: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(dice, tenant.keys)
  if (known === undefined) return
  yield* clients.admin(
    dice,
    "deleteKey",
    tenant,
    "DELETE",
    `/api/v0/orgs/${tenant.orgId}/keys/${known.id}`,
    undefined,
    {
      keyId: known.id,
    },
  )
})

const channelsOf = ({ name }: Tenant, dice: Dice) =>
  Array.from({ length: dice.int(1, 2) }, () => `${name}-channel${dice.int(1, 3)}`)

/** What an event is of, which endpoints filter by. */
const tiers = ["free", "pro"] as const

const createEndpoint: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const url = `https://${clients.name(tenant, "receiver")}.example/hook`
  const ordered = dice.chance(clients.habits.ordered)
  const settings = {
    ...(ordered ? { ordered } : {}),
    ...(dice.chance(clients.habits.limited) ? { max_per_second: dice.pick([1, 5]) } : {}),
    ...(dice.chance(clients.habits.narrow) ? { channels: channelsOf(tenant, dice) } : {}),
    ...(dice.chance(clients.habits.narrow) ? { filter: { "data.tier": dice.pick(tiers) } } : {}),
    ...dice.pick([
      {},
      {},
      {},
      { payload: "data" },
      ordered ? {} : { batch: { max: dice.int(1, 4), within_ms: 2_000 } },
    ]),
    ...(dice.chance(0.2) ? { header_names: "svix" } : {}),
    ...(dice.chance(0.2) ? { external_id: `outside${dice.int(1, 4)}` } : {}),
  }
  const done = yield* clients.own(
    dice,
    "createEndpoint",
    tenant,
    "webhooks/create",
    { url, signing_secret: signingSecret, ...settings },
    { url, ...settings },
    true,
  )
  if (done.status !== 200) return
  if (dice.chance(clients.habits.slow)) clients.receivers.behave(url, "slow")
  tenant.endpoints.push({ id: done.body.webhook_endpoint_id, url })
  const { external_id } = settings
  if (external_id !== undefined)
    yield* clients.own(dice, "getEndpoint", tenant, "webhooks/get", { external_id }, { externalId: external_id })
})

const updateEndpoint: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const endpoint = oneOf(dice, tenant.endpoints)
  if (endpoint === undefined) return
  const change = dice.pick([
    { active: true },
    { active: false },
    { ordered: true },
    { description: tenant.name },
    { headers: { "x-mark": clients.name(tenant, "header") } },
  ])
  yield* clients.own(
    dice,
    "updateEndpoint",
    tenant,
    "webhooks/update",
    { id: endpoint.id, ...change },
    { endpointId: endpoint.id, url: endpoint.url, ...change },
  )
})

const deleteEndpoint: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const endpoint = oneOf(dice, tenant.endpoints)
  if (endpoint === undefined) return
  yield* clients.own(
    dice,
    "deleteEndpoint",
    tenant,
    "webhooks/delete",
    { id: endpoint.id },
    { endpointId: endpoint.id, url: endpoint.url },
  )
})

const publish: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const one = () => ({
    type: dice.pick(["order.paid", "order.sent", "user.made"]),
    data: { mark: clients.name(tenant, "event"), tier: dice.pick(tiers) },
    ...(dice.chance(0.4) ? { idempotency_key: clients.name(tenant, "event") } : {}),
    ...(dice.chance(clients.habits.narrow) ? { channels: channelsOf(tenant, dice) } : {}),
  })
  const argsOf = (all: ReadonlyArray<ReturnType<typeof one>>) => ({
    marks: all.map(({ data }) => data.mark),
    tiers: all.map(({ data }) => data.tier),
    channels: all.map(({ channels = [] }) => channels),
  })
  if (dice.chance(clients.habits.batches)) {
    const events = Array.from({ length: dice.int(2, 12) }, one)
    return yield* clients.own(dice, "publishBatch", tenant, "events/publish-batch", { events }, argsOf(events), true)
  }
  const event = one()
  // Of the two ways to repeat a request safely, each alone is enough.
  const hasOwnKey = event.idempotency_key !== undefined
  yield* clients.own(dice, "publish", tenant, "events/publish", event, argsOf([event]), !hasOwnKey)
})

/** A replica stands still with an answer until its lease has ended, and records it while another one sends. */
const lateRecord: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const { receivers } = clients
  const url = `https://${clients.name(tenant, "late")}.example/hook`
  const settings = { url, channels: [clients.name(tenant, "channel")] }
  const endpoint = { ...settings, signing_secret: signingSecret }
  const made = yield* clients.own(dice, "createEndpoint", tenant, "webhooks/create", endpoint, settings, true)
  if (made.status !== 200) return
  receivers.behave(url, "fails")
  const mark = clients.name(tenant, "event")
  const event = { type: "order.paid", data: { mark }, channels: settings.channels }
  const args = { marks: [mark], channels: [settings.channels] }
  yield* clients.own(dice, "publish", tenant, "events/publish", event, args, true)
  const first = () => receivers.received.find((one) => one.url === url)
  for (let n = 0; n < 2_000 && first() === undefined; n++) yield* Effect.sleep(2)
  const sender = clients.replicas.find(({ name }) => name === first()?.from)
  if (sender !== undefined) clients.disturb({ kind: "pause", millis: dice.int(50_000, 62_000), seed: 0 }, sender)
  receivers.behave(url, "slow")
  yield* Effect.sleep(70_000)
  receivers.behave(url, "well")
})

const createJob: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const mark = clients.name(tenant, "job")
  const callback = dice.chance(0.25) ? `https://${clients.name(tenant, "callback")}.example/done` : undefined
  const settings = {
    ...(dice.chance(0.3) ? { max_attempts: dice.int(1, 3) } : {}),
    ...(dice.chance(0.3) ? { priority: dice.int(-5, 5) } : {}),
    ...(dice.chance(0.2) ? { skip_callbacks: true } : {}),
    ...(callback === undefined ? {} : { callback_url: callback, callback_secret: signingSecret }),
  }
  const hasOwnKey = dice.chance(0.4)
  const done = yield* clients.own(
    dice,
    "createJob",
    tenant,
    "jobs/create",
    { workflow: `${tenant.name}-work`, input: { mark }, ...settings, ...(hasOwnKey ? { idempotency_key: mark } : {}) },
    { mark, ...settings },
    !hasOwnKey,
  )
  if (done.status !== 200) return
  tenant.jobs.push(done.body.job_id)
  if (callback !== undefined) tenant.callbacks.push(callback)
})

/** Claims jobs, as a worker does. */
const claimJobs = (
  clients: Clients,
  tenant: Tenant,
  dice: Dice,
  body: { readonly lease_seconds: number; readonly [field: string]: unknown },
) => {
  const call = { method: "POST", path: "/v1/jobs/claim", headers: { "x-api-key": tenant.key }, body }
  const args = { leaseSeconds: body.lease_seconds, workflow: body["workflow"] }
  return clients.send(dice, "claim", tenant, call, args, { tries: 3 })
}

/** How often a worker reports what. */
type Reports = Partial<
  Readonly<Record<"complete" | "completeBatch" | "fail" | "heartbeat" | "log" | "step" | "cancelJob", number>>
>

/** A report about a job. Without an attempt it counts for any. A heartbeat extends the lease to `leaseSeconds`. */
const report = (
  clients: Clients,
  tenant: Tenant,
  dice: Dice,
  {
    attempt,
    jobId,
    leaseSeconds,
  }: { readonly jobId: string; readonly attempt?: number; readonly leaseSeconds: number },
  reports: Reports,
): Effect.Effect<Done> => {
  const kind = dice.weighted(reports as Required<Reports>)
  const mark = clients.name(tenant, kind)
  const own = (path: string, fields: object, args: object = fields) =>
    clients.own(dice, kind, tenant, `jobs/${path}`, { job_id: jobId, attempt, ...fields }, { jobId, attempt, ...args })
  switch (kind) {
    case "complete":
      return own("complete", { result: { mark } })
    case "completeBatch":
      return completeAll(clients, tenant, dice, [{ jobId, attempt }])
    case "fail":
      return own("fail", { error: mark, retry: dice.chance(0.5) })
    case "heartbeat":
      return own("heartbeat", { lease_seconds: leaseSeconds }, { leaseSeconds })
    case "log":
      return own("log", { attempt: attempt ?? 1, lines: [{ text: mark }] }, { attempt: attempt ?? 1, mark })
    case "step": {
      const step = { attempt: attempt ?? 1, name: dice.pick(["read", "write"]), result: { mark } }
      return own("step", step, { attempt: step.attempt, step: step.name, mark })
    }
    case "cancelJob":
      return clients.own(dice, kind, tenant, "jobs/cancel", { job_id: jobId }, { jobId })
  }
}

/** Completes jobs with one request. Each has an answer of its own, which counts as one of `jobs/complete`. */
const completeAll = Effect.fnUntraced(function* (
  clients: Clients,
  tenant: Tenant,
  dice: Dice,
  all: ReadonlyArray<{ readonly jobId: string; readonly attempt?: number | undefined }>,
) {
  const jobs = all.map((one) => ({ ...one, result: { mark: clients.name(tenant, "result") } }))
  const asked = jobs.map(({ attempt, jobId, result }) => ({ job_id: jobId, attempt, result }))
  const done = yield* clients.own(dice, "completeJobs", tenant, "jobs/complete-batch", { jobs: asked }, {})
  for (const [n, args] of jobs.entries()) {
    const outcome = done.body?.jobs?.[n]
    const refused = outcome?.code === "not_found" ? 404 : 409
    const status = done.status === 200 ? (outcome?.success === true ? 200 : refused) : done.status
    const tries = [...done.tries.slice(0, -1), ...done.tries.slice(-1).map((each) => ({ ...each, status }))]
    // Another job in this place is none of an answer.
    const body = outcome?.job_id === args.jobId || done.status !== 200 ? done.body : ({ job_id: "another" } as Body)
    clients.done.push({ ...done, kind: "complete", args, status, body, tries })
  }
  return done
})

/** A worker claims jobs, works on each, stalls now and then, and reports. */
const work: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const leaseSeconds = 10
  const claimed = yield* claimJobs(clients, tenant, dice, {
    limit: dice.int(1, 3),
    lease_seconds: leaseSeconds,
    wait_seconds: dice.pick([0, 0, 20]),
  })
  for (const { attempt, job_id: jobId } of claimed.body?.jobs ?? []) {
    const fence = { jobId, attempt, leaseSeconds }
    // A worker that stalls reports after its lease has expired.
    yield* Effect.sleep(dice.chance(0.25) ? dice.int(8_000, 40_000) : dice.int(10, 3_000))
    if (dice.chance(0.4)) {
      yield* report(clients, tenant, dice, fence, { heartbeat: 3, log: 1, step: 1 })
      yield* Effect.sleep(dice.int(10, 5_000))
    }
    if (dice.chance(0.1)) continue
    const end = report(clients, tenant, dice, fence, { complete: 6, completeBatch: 1, fail: 3 })
    yield* end
    if (dice.chance(0.15)) yield* end
  }
})

/** A worker reports after its lease, while another one has the job. */
const lateWorker: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "late")}-work`
  const claim = (seconds: number, wait: number) =>
    claimJobs(clients, tenant, dice, { workflow, limit: 1, lease_seconds: seconds, wait_seconds: wait })
  const input = { mark: clients.name(tenant, "job") }
  const made = yield* clients.own(dice, "createJob", tenant, "jobs/create", { workflow, input }, { workflow }, true)
  if (made.status !== 200) return
  const jobId = made.body.job_id
  const first = yield* claim(dice.pick([1, 3]), 0)
  if (first.body?.jobs?.length !== 1) return
  const second = yield* claim(30, 20)
  if (second.body?.jobs?.length !== 1) return
  const of = (attempt: number) =>
    report(
      clients,
      tenant,
      dice,
      { jobId, attempt, leaseSeconds: 30 },
      { complete: 4, completeBatch: 1, fail: 1, heartbeat: 1, log: 0.5, step: 0.5 },
    )
  const [late, current] = [first.body.jobs[0]!.attempt, second.body.jobs[0]!.attempt]
  yield* Effect.all([of(late), Effect.delay(of(current), dice.int(0, 3_000))], { concurrency: 2 })
})

/** The last attempt of a job: its worker extends the lease just as it expires, and reports within the new one. */
const lastLease: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "last")}-work`
  const job = { workflow, input: { mark: clients.name(tenant, "job") }, max_attempts: 1 }
  const made = yield* clients.own(dice, "createJob", tenant, "jobs/create", job, { workflow }, true)
  if (made.status !== 200) return
  const jobId = made.body.job_id
  const lease = dice.int(1, 2)
  // What an expiry reads is old when it writes.
  const slow = { kind: "slow database", millis: 8_000, seed: dice.bits() } as const
  if (dice.chance(0.5)) for (const replica of clients.replicas) clients.disturb(slow, replica)
  const { body } = yield* claimJobs(clients, tenant, dice, { workflow, limit: 1, lease_seconds: lease })
  const attempt = body?.jobs?.[0]?.attempt
  if (attempt === undefined) return
  const fence = { jobId, attempt, leaseSeconds: 30 }
  yield* Effect.sleep(lease * 1_000 + dice.int(-200, 1_200))
  yield* report(clients, tenant, dice, fence, { heartbeat: 1 })
  yield* Effect.sleep(dice.pick([0, 1_000, 4_000]))
  yield* report(clients, tenant, dice, fence, { complete: 1 })
})

/** Several reports about one job at the same time: by its worker, by an old version of it, and by an administrator. */
const duel: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "duel")}-work`
  const input = { mark: clients.name(tenant, "job") }
  const job = { workflow, input, max_attempts: dice.pick([1, 3, 3]), retry_delay_seconds: dice.int(1, 2) }
  const made = yield* clients.own(dice, "createJob", tenant, "jobs/create", job, { workflow }, true)
  if (made.status !== 200) return
  const jobId = made.body.job_id
  const leaseSeconds = dice.pick([1, 10])
  const claim = claimJobs(clients, tenant, dice, { workflow, limit: 1, lease_seconds: leaseSeconds })
  const { body } = yield* claim
  const number = body?.jobs?.[0]?.attempt
  if (number === undefined) return
  const one = () => {
    // A worker may report without its attempt: then any attempt's report counts.
    const fence = { jobId, ...(dice.chance(0.3) ? {} : { attempt: number }), leaseSeconds: 10 }
    return report(clients, tenant, dice, fence, {
      complete: 3,
      completeBatch: 1,
      fail: 4,
      heartbeat: 1,
      log: 0.5,
      step: 0.5,
      cancelJob: 0.5,
    })
  }
  if (leaseSeconds === 1) yield* Effect.sleep(dice.int(0, 1_500))
  const spread = dice.pick([3, 60, 500])
  const all = [...Array.from({ length: dice.int(2, 4) }, one), ...(dice.chance(0.6) ? [claim] : [])]
  yield* Effect.all(
    all.map((one) => Effect.delay(one, dice.next() * spread)),
    { concurrency: "unbounded" },
  )
  if (dice.chance(0.5)) yield* one()
})

/** A batch of jobs, and another one with some of their idempotency keys. */
const createJobs = Effect.fnUntraced(function* (clients: Clients, tenant: Tenant, dice: Dice, workflow?: string) {
  const own = workflow ?? `${tenant.name}-work`
  const one = () => {
    const mark = clients.name(tenant, "job")
    const attempts = dice.chance(0.5) ? { max_attempts: 1 } : {}
    return { workflow: own, input: { mark }, ...attempts, ...(dice.chance(0.3) ? { idempotency_key: mark } : {}) }
  }
  const send = (jobs: ReadonlyArray<ReturnType<typeof one>>) => {
    const marks = jobs.map(({ input }) => input.mark)
    const keys = jobs.map(({ idempotency_key }) => idempotency_key ?? null)
    const args = { workflow: own, marks, keys }
    return clients.own(dice, "createJobs", tenant, "jobs/create-batch", { jobs }, args, true)
  }
  const jobs = Array.from({ length: dice.int(2, 8) }, one)
  const done = yield* send(jobs)
  if (done.status === 200) tenant.jobs.push(...done.body.job_ids!)
  const keyed = jobs.filter(({ idempotency_key }) => idempotency_key !== undefined)
  if (keyed.length > 0 && dice.chance(0.5)) yield* send(dice.chance(0.5) ? [one(), ...keyed] : keyed)
  return done
})

const retryJob: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const list = yield* clients.own(dice, "listJobs", tenant, "jobs/list", { status: "failed", limit: 20 })
  const job = oneOf(dice, list.body?.jobs ?? [])
  if (job === undefined) return
  const { input: old, job_id, unique_key } = job
  const input = dice.chance(0.4) ? { ...old, again: clients.name(tenant, "input") } : undefined
  const args = { jobId: job_id, isUnique: unique_key != null }
  yield* clients.own(dice, "retryJob", tenant, "jobs/retry", { job_id, input }, args)
})

/** A time after all runs: what a filter with it selects does not depend on clocks. */
const afterAll = "2031-01-01T00:00:00.000Z"

/** Workers fail the jobs of a workflow, and somebody retries or cancels all of them meanwhile. */
const sweepJobs: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "sweep")}-work`
  const made = (yield* createJobs(clients, tenant, dice, workflow)).body?.job_ids ?? []
  const work = Effect.gen(function* () {
    const { body } = yield* claimJobs(clients, tenant, dice, { workflow, limit: dice.int(1, 8), lease_seconds: 10 })
    const claimed = (body?.jobs ?? []).map(({ attempt, job_id }) => ({ jobId: job_id, attempt, leaseSeconds: 10 }))
    if (claimed.length > 0 && dice.chance(0.2)) return yield* completeAll(clients, tenant, dice, claimed)
    const reports = claimed.map((fence) =>
      Effect.delay(report(clients, tenant, dice, fence, { complete: 1, fail: 4, log: 0.5 }), dice.int(0, 300)),
    )
    return yield* Effect.all(reports, { concurrency: 4 })
  })
  yield* work
  for (let n = dice.int(1, 3); n > 0; n--) {
    const [kind, path] = dice.chance(0.7) ? (["retryJobs", "retry"] as const) : (["cancelJobs", "cancel"] as const)
    const until = dice.chance(0.7) ? { until: afterAll } : {}
    const args = { workflow, ...until }
    const sweep = Effect.gen(function* () {
      const { body } = yield* clients.own(dice, kind, tenant, `jobs/${path}`, { filter: args }, args)
      if (body?.sweep_id == null || dice.chance(0.6)) return
      const sweepId = body.sweep_id
      yield* clients.own(dice, "endSweep", tenant, "jobs/sweeps/cancel", { sweep_id: sweepId }, { sweepId })
      // What it has not reached stays as it is.
      yield* Effect.all(
        made.map((jobId) => clients.own(dice, "getJob", tenant, "jobs/get", { job_id: jobId }, { jobId })),
      )
    })
    yield* Effect.all([sweep, Effect.delay(work, dice.int(0, 60))], { concurrency: 2 })
    yield* Effect.sleep(dice.pick([0, 500, 3_000]))
  }
  yield* work
})

/** Several ask for a job with one key at once, while a worker has it or when it has ended. */
const uniqueJobs: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "unique")}-work`
  const debounce = dice.chance(0.4) ? { debounce_seconds: dice.pick([2, 10]) } : {}
  const create = () => {
    const mark = clients.name(tenant, "job")
    const job = { workflow, input: { mark }, unique: { key: `${tenant.name}-key` }, ...debounce }
    return clients.own(
      dice,
      "createUnique",
      tenant,
      "jobs/create",
      job,
      { workflow, mark, ...debounce },
      dice.chance(0.5),
    )
  }
  const several = (spread: number) =>
    Array.from({ length: dice.int(1, 3) }, () => Effect.delay(create(), dice.int(0, spread)))
  yield* Effect.all(several(debounce.debounce_seconds === undefined ? 30 : 4_000), { concurrency: "unbounded" })
  for (let n = dice.int(1, 2); n > 0; n--) {
    const claim = { workflow, limit: 1, lease_seconds: 10, wait_seconds: 20 }
    const { body } = yield* claimJobs(clients, tenant, dice, claim)
    const ends = (body?.jobs ?? []).map(({ attempt, job_id }) =>
      report(clients, tenant, dice, { jobId: job_id, attempt, leaseSeconds: 10 }, { complete: 2, fail: 1 }),
    )
    yield* Effect.all([...ends.map((end) => Effect.delay(end, dice.int(0, 40))), ...several(60)], {
      concurrency: "unbounded",
    })
  }
})

/** Makes jobs of a workflow, with what else each has. */
const jobsOf = Effect.fnUntraced(function* (
  clients: Clients,
  tenant: Tenant,
  dice: Dice,
  workflow: string,
  fields: ReadonlyArray<object>,
) {
  const jobs = fields.map((more) => ({ workflow, input: { mark: clients.name(tenant, "job") }, ...more }))
  const args = { workflow, marks: jobs.map(({ input }) => input.mark), keys: jobs.map(() => null), fields }
  return yield* clients.own(dice, "createJobs", tenant, "jobs/create-batch", { jobs }, args, true)
})

/** Workers of a workflow with limits, at several replicas. Some let their leases end; at last nothing waits. */
const limitWorkflow: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "limited")}-work`
  const rate = { limit: dice.int(1, 3), window_seconds: dice.pick([2, 10]) }
  const limits = dice.pick([
    { concurrency: dice.int(1, 3) },
    { concurrency_per_key: dice.int(1, 2) },
    { concurrency: 3, concurrency_per_key: 1 },
    { rate },
    { concurrency: 2, rate },
  ])
  const asked = { workflow, ...limits }
  const set = yield* clients.own(dice, "setWorkflow", tenant, "workflows/set", asked, { workflow, limits })
  if (set.status !== 200) return
  // Some have one key more often than others.
  const keys = dice.pick([
    [0, 1, 2],
    [0, 0, 0, 0, 1],
  ])
  const fields = Array.from({ length: dice.int(4, 10) }, () => ({
    concurrency_key: `${tenant.name}-key${dice.pick(keys)}`,
  }))
  if ((yield* jobsOf(clients, tenant, dice, workflow, fields)).status !== 200) return
  const claim = (limit: number, wait: number) =>
    claimJobs(clients, tenant, dice, { workflow, limit, lease_seconds: 10, wait_seconds: wait })
  const worker = Effect.gen(function* () {
    for (let n = dice.int(2, 5); n > 0; n--) {
      const { body } = yield* claim(dice.int(1, 4), dice.pick([0, 5]))
      for (const { attempt, job_id: jobId } of body?.jobs ?? []) {
        yield* Effect.sleep(dice.int(10, 1_500))
        const fence = { jobId, attempt, leaseSeconds: 10 }
        if (dice.chance(0.85))
          yield* report(clients, tenant, dice, fence, { complete: 5, completeBatch: 1, heartbeat: 1 })
      }
    }
  })
  yield* Effect.all(
    Array.from({ length: dice.int(2, 4) }, () => worker),
    { concurrency: "unbounded" },
  )
  yield* Effect.sleep(15_000)
  for (let [n, empty] = [0, 0]; n < 40 && empty < 3; n++) {
    const { body, status } = yield* claim(5, 15)
    const jobs = body?.jobs ?? []
    empty = status === 200 && jobs.length === 0 ? empty + 1 : 0
    yield* Effect.forEach(jobs, ({ attempt, job_id: jobId }) =>
      report(clients, tenant, dice, { jobId, attempt, leaseSeconds: 10 }, { complete: 1 }),
    )
  }
})

/** Jobs of a workflow that says how often they are tried, or when they expire. */
const policies: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "policy")}-work`
  const isRetried = dice.chance(0.5)
  const limits = isRetried ? { retry: { attempts: 2, delays: [1] } } : { expires_in_seconds: dice.int(2, 8) }
  const asked = { workflow, ...limits }
  const set = yield* clients.own(dice, "setWorkflow", tenant, "workflows/set", asked, { workflow, limits })
  if (set.status !== 200) return
  const fields = Array.from({ length: dice.int(2, 5) }, () =>
    isRetried || dice.chance(0.5) ? {} : { expires_in_seconds: dice.int(2, 20) },
  )
  yield* jobsOf(clients, tenant, dice, workflow, fields)
  yield* clients.own(dice, "look", tenant, "workflows/get", { workflow }, { workflow })
  if (!isRetried && dice.chance(0.2)) {
    // They expire while nobody is awake; then a worker asks.
    for (const replica of clients.replicas) clients.disturb({ kind: "pause", millis: 16_000, seed: 0 }, replica)
    yield* Effect.sleep(15_900)
  }
  for (let n = dice.int(2, 5); n > 0; n--) {
    const { body } = yield* claimJobs(clients, tenant, dice, { workflow, limit: dice.int(1, 2), lease_seconds: 3 })
    for (const { attempt, job_id: jobId } of body?.jobs ?? []) {
      if (dice.chance(0.6)) yield* report(clients, tenant, dice, { jobId, attempt, leaseSeconds: 3 }, { fail: 1 })
    }
    if (isRetried && dice.chance(0.4)) yield* retryJob(clients, tenant, dice)
    yield* Effect.sleep(dice.int(500, 6_000))
  }
  if (dice.chance(0.3))
    yield* clients.own(dice, "deleteWorkflow", tenant, "workflows/delete", { workflow }, { workflow })
})

/** A type of the catalogue, from its creation to its deletion. */
const describeType: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const name = `${clients.name(tenant, "type")}.made`
  const ask = (path: string, body: object) =>
    clients.own(dice, "describeType", tenant, `event-types/${path}`, { name, ...body }, { name })
  if ((yield* ask("create", { schemas: { "1": { type: "object" } }, example: {} })).status !== 200) return
  yield* ask("update", { schemas: { "2": { type: "number" } }, example: 1 })
  yield* ask("get", {})
  if (dice.chance(0.5)) yield* ask("delete", {})
})

const cancelJob: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const jobId = oneOf(dice, tenant.jobs)
  if (jobId !== undefined) yield* clients.own(dice, "cancelJob", tenant, "jobs/cancel", { job_id: jobId }, { jobId })
})

const createSchedule: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = clients.name(tenant, "schedule")
  const overlap = dice.pick(["allow", "skip"])
  const minutes = dice.pick([1, 1, 10])
  const done = yield* clients.own(
    dice,
    "createSchedule",
    tenant,
    "schedules/create",
    { workflow, cron: `*/${minutes} * * * *`, overlap, input: { mark: workflow } },
    { workflow, overlap, minutes },
    true,
  )
  if (done.status === 200) tenant.schedules.push(done.body.schedule_id)
})

const deleteSchedule: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const scheduleId = oneOf(dice, tenant.schedules)
  if (scheduleId === undefined) return
  yield* clients.own(dice, "deleteSchedule", tenant, "schedules/delete", { schedule_id: scheduleId }, { scheduleId })
})

const retryDelivery: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const list = yield* clients.own(dice, "listDeliveries", tenant, "webhooks/deliveries/list", { limit: 20 })
  const delivery = oneOf(dice, list.body?.deliveries ?? [])
  if (delivery === undefined) return
  const deliveryId = delivery.delivery_id
  yield* clients.own(
    dice,
    "retryDelivery",
    tenant,
    "webhooks/deliveries/retry",
    { delivery_id: deliveryId },
    { deliveryId, endpointId: delivery.webhook_endpoint_id },
  )
})

/** What hangs while its endpoint is deactivated is sent again by a filter: before its attempt, and so it, has ended. */
const resendHanging: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const { receivers } = clients
  const url = `https://${clients.name(tenant, "hanging")}.example/hook`
  const settings = { url, channels: [clients.name(tenant, "channel")] }
  const endpoint = { ...settings, signing_secret: signingSecret }
  const made = yield* clients.own(dice, "createEndpoint", tenant, "webhooks/create", endpoint, settings, true)
  if (made.status !== 200) return
  receivers.behave(url, dice.pick(["hangs", "slow"]))
  const mark = clients.name(tenant, "event")
  const event = { type: "order.paid", data: { mark }, channels: settings.channels }
  yield* clients.own(
    dice,
    "publish",
    tenant,
    "events/publish",
    event,
    { marks: [mark], channels: [event.channels] },
    true,
  )
  const isThere = () => receivers.received.some((one) => one.url === url)
  for (let n = 0; n < 500 && !isThere(); n++) yield* Effect.sleep(20)
  const id = made.body.webhook_endpoint_id
  for (const active of [false, true])
    yield* clients.own(
      dice,
      "updateEndpoint",
      tenant,
      "webhooks/update",
      { id, active },
      { endpointId: id, url, active },
    )
  receivers.behave(url, "well")
  yield* Effect.sleep(dice.int(5, 200))
  const filter = { webhook_endpoint_id: id, until: afterAll }
  const args = { endpointId: id, url, until: afterAll }
  yield* clients.own(dice, "resend", tenant, "webhooks/deliveries/resend", { filter }, args)
})

/** Sends by a filter what an endpoint, or all, did not get: also what came while one was inactive. */
const resend: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  if (dice.chance(0.3)) return yield* resendHanging(clients, tenant, dice)
  const endpoint = oneOf(dice, tenant.endpoints)
  if (endpoint === undefined) return
  const { id, url } = endpoint
  const activate = (active: boolean) =>
    clients.own(dice, "updateEndpoint", tenant, "webhooks/update", { id, active }, { endpointId: id, url, active })
  if (dice.chance(0.7)) {
    yield* activate(false)
    for (let n = dice.int(1, 3); n > 0; n--) yield* publish(clients, tenant, dice)
    yield* activate(true)
    yield* Effect.sleep(dice.pick([0, 0, 6_000]))
  }
  const ofOne = dice.chance(0.6)
  const filter = { ...(ofOne ? { webhook_endpoint_id: id } : {}), ...(dice.chance(0.7) ? { until: afterAll } : {}) }
  const args = { ...(ofOne ? { endpointId: id, url } : {}), until: filter.until }
  const { body } = yield* clients.own(dice, "resend", tenant, "webhooks/deliveries/resend", { filter }, args)
  if (body?.resend_id == null || dice.chance(0.6)) return
  const resendId = body.resend_id
  yield* Effect.sleep(dice.pick([0, 0, 0, 100]))
  const path = "webhooks/deliveries/resend/cancel"
  yield* clients.own(dice, "cancelResend", tenant, path, { resend_id: resendId }, { resendId })
})

const recover: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const endpoint = oneOf(dice, tenant.endpoints)
  if (endpoint === undefined) return
  const since = "2029-12-31T00:00:00.000Z"
  yield* clients.own(
    dice,
    "recover",
    tenant,
    "webhooks/deliveries/recover",
    { webhook_endpoint_id: endpoint.id, since, until: afterAll },
    { endpointId: endpoint.id, url: endpoint.url, until: afterAll },
  )
})

/** Makes a further tenant, which another operation may delete. */
const createOrgs: Operation = Effect.fnUntraced(function* (clients, _tenant, dice) {
  const tenant = tenantOf(`t${clients.tenants.length + 1}x`, true)
  yield* clients.found(dice, tenant)
  if (tenant.key === "") return
  yield* createProject(clients, tenant, dice)
  yield* createKey(clients, tenant, dice)
  yield* createEndpoint(clients, tenant, dice)
  yield* createSchedule(clients, tenant, dice)
  yield* Effect.all(
    [publish, publish, createJob, work].map((one) => one(clients, tenant, dice)),
    { concurrency: 4 },
  )
})

/** What a tenant may write while its org is being deleted. */
const writes: ReadonlyArray<Operation> = [
  (...args) => publish(...args),
  (...args) => createJob(...args),
  (...args) => createEndpoint(...args),
  (...args) => createSchedule(...args),
  (...args) => createProject(...args),
  (...args) => createKey(...args),
  (...args) => register(...args),
  (...args) => useSession(...args),
]

const deleteOrg: Operation = Effect.fnUntraced(function* (clients, _tenant, dice) {
  const tenant = clients.tenants.find((one) => one.isShortLived && !one.isDeleted && one.key !== "")
  if (tenant === undefined) return
  tenant.isDeleted = true
  const orgId = tenant.orgId
  const end = clients.admin(dice, "deleteOrg", tenant, "DELETE", `/api/v0/orgs/${orgId}`, undefined, { orgId })
  const known = oneOf(dice, tenant.keys)
  // What began before the deletion may be written after it.
  const late = Array.from({ length: dice.int(0, 8) }, () =>
    Effect.delay(dice.pick(writes)(clients, tenant, dice), dice.int(0, 40)),
  )
  yield* Effect.all([known === undefined ? end : whileUsed(clients, tenant, dice, known, end), ...late], {
    concurrency: "unbounded",
  })
})

/** An org is deleted while an ordered endpoint answers slowly: what waits for its turn is not sent. */
const endWhileSending: Operation = Effect.fnUntraced(function* (clients, _tenant, dice) {
  const tenant = tenantOf(`t${clients.tenants.length + 1}x`, true)
  yield* clients.found(dice, tenant)
  if (tenant.key === "") return
  tenant.isDeleted = true
  const settings = { url: `https://${clients.name(tenant, "receiver")}.example/hook`, ordered: true }
  const endpoint = { ...settings, signing_secret: signingSecret }
  yield* clients.own(dice, "createEndpoint", tenant, "webhooks/create", endpoint, settings, true)
  clients.receivers.behave(settings.url, "slow")
  const marks = Array.from({ length: 8 }, () => clients.name(tenant, "event"))
  const events = marks.map((mark) => ({ type: "order.paid", data: { mark } }))
  const args = { marks, channels: marks.map(() => []) }
  yield* clients.own(dice, "publishBatch", tenant, "events/publish-batch", { events }, args, true)
  yield* Effect.sleep(dice.int(300, 6_000))
  const { orgId } = tenant
  yield* clients.admin(dice, "deleteOrg", tenant, "DELETE", `/api/v0/orgs/${orgId}`, undefined, { orgId })
})

const createProject: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const name = clients.name(tenant, "project")
  const done = yield* clients.admin(
    dice,
    "createProject",
    tenant,
    "POST",
    "/api/v0/projects",
    { name, orgId: tenant.orgId },
    { name },
    true,
  )
  if (done.status === 200) tenant.projects.push(done.body.projectId)
})

const deleteProject: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  if (tenant.projects.length === 0) yield* createProject(clients, tenant, dice)
  const projectId = oneOf(dice, tenant.projects)
  if (projectId === undefined) return
  if (dice.chance(0.7)) yield* createKey(clients, tenant, dice, projectId)
  tenant.projects.splice(tenant.projects.indexOf(projectId), 1)
  const path = `/api/v0/projects/${projectId}`
  const end = clients.admin(dice, "deleteProject", tenant, "DELETE", path, undefined, { projectId })
  const known = tenant.keys.find((one) => one.projectId === projectId)
  yield* known === undefined ? end : whileUsed(clients, tenant, dice, known, end)
})

/** A run of CI registers its deployment, now and then later than a newer run. */
const register: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const owner = `${tenant.name}-ci`
  if (tenant.lastRun === 1_000) {
    const path = `/api/v0/orgs/${tenant.orgId}`
    const done = yield* clients.admin(dice, "setOwners", tenant, "PATCH", path, { owners: [owner] }, { owner })
    if (done.status !== 200) return
  }
  const run = { owner, name: `${tenant.name}-app${dice.int(1, 2)}`, runId: ++tenant.lastRun }
  yield* Effect.sleep(dice.pick([0, 100, 5_000]))
  const token = clients.issuers.token(run, epochMillis + clients.world.now)
  const call = {
    method: "POST",
    path: "/api/v0/register-deployment",
    headers: { authorization: `Bearer ${token}` },
    body: {},
  }
  const times = dice.pick([1, 1, 2])
  const sent = yield* Effect.all(
    Array.from({ length: times }, () => clients.send(dice, "register", tenant, call, { ...run })),
    { concurrency: 2 },
  )
  for (const { body, status } of sent) if (status === 200) tenant.deployed.add(body.projectId)
})

const promote: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const projectId = oneOf(dice, [...tenant.deployed])
  if (projectId === undefined) return
  const path = `/api/v0/projects/${projectId}/deployments`
  const list = yield* clients.admin(dice, "listDeployments", tenant, "GET", path)
  const deployment = oneOf(dice, list.body?.deployments ?? [])
  if (deployment === undefined) return
  yield* clients.admin(dice, "promote", tenant, "POST", `${path}/${deployment.id}/promote`, undefined, {
    projectId,
    runId: Number(deployment.runId),
  })
})

/** The documentation of a project changes a few times, is read everywhere, and is removed in the end. */
const storeDocs: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const project = clients.name(tenant, "docs")
  const { orgId } = tenant
  const asked = { name: project }
  const create = ["POST", "/api/v0/projects", { ...asked, orgId }, asked, true] as const
  const { body, status } = yield* clients.admin(dice, "createProject", tenant, ...create)
  if (status !== 200) return
  const path = `/api/v0/projects/${body.projectId}/docs`
  const call = { method: "GET", path: `${path}/llms.txt`, headers: { "x-api-key": tenant.key } }
  const read = clients.send(dice, "readDocs", tenant, call, { project }, { tries: 1 })
  const versions = dice.int(2, 4)
  for (let version = 1; version <= versions; version++) {
    const docsZipUrl = `https://${project}-${version}.example/docs.zip`
    const count = dice.int(1, 4)
    const pages = Array.from({ length: count }, (_, n) => {
      return { slug: `page${n}`, markdown: `# version ${version} page ${n} of ${count}` }
    })
    clients.receivers.documents.set(docsZipUrl, JSON.stringify(pages))
    if (dice.chance(0.4)) clients.receivers.behave(docsZipUrl, "slow")
    yield* clients.admin(dice, "putDocs", tenant, "PUT", path, { docsZipUrl }, { project, version, url: docsZipUrl })
    const reads = Array.from({ length: 8 }, () => read)
    yield* spread(dice, dice.pick([500, 3_000, 40_000]), reads)
  }
  yield* clients.admin(dice, "removeDocs", tenant, "DELETE", path, undefined, { project })
  yield* spread(dice, 500, [read, read])
})

/**
 * A portal link is opened by two at once, and later again, now and then after it was revoked. Its session ends with
 * the key that made the link. In a frame, its holder asks for three keys at once, and may have one.
 */
const portal: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(
    dice,
    tenant.keys.filter((one) => !one.isLimited && one.projectId === undefined && one.isImported !== true),
  )
  const headers = { "x-api-key": known?.key ?? tenant.key }
  const holder = `holder_${dice.int(0, 1e9)}`
  const body = { keys: { external_id: holder, max_keys: 1 } }
  const asked = { method: "POST", path: "/v1/portal/link", headers, body }
  const made = yield* clients.send(dice, "portalLink", tenant, asked, { keyId: known?.id })
  if (made.status !== 200) return
  const token = made.body.url.slice(`${baseUrl}/console/portal#`.length)
  const link = token.slice(-8)
  const call = {
    method: "POST",
    path: "/api/v0/sessions/portal",
    headers: {},
    body: { token, inFrame: dice.chance(0.3) },
  }
  const open = clients.send(dice, "openPortal", tenant, call, { link }, { tries: 3 })
  const opened = yield* Effect.all([open, Effect.delay(open, dice.pick([0, 0, 50]))], { concurrency: 2 })
  const cookie = opened.find((one) => one.status === 200)?.cookie
  if (known !== undefined && cookie !== undefined && dice.chance(0.6))
    yield* useCookie(clients, tenant, dice, known, cookie)
  const bearer = opened.find((one) => one.status === 200)?.body.token
  if (bearer !== undefined) {
    const path = `/api/v0/orgs/${tenant.orgId}/keys`
    const body = { name: clients.name(tenant, "own") }
    const create = { method: "POST", path, headers: { authorization: `Bearer ${bearer}` }, body }
    const make = clients.send(dice, "holderKey", tenant, create, { holder })
    yield* Effect.all([make, make, make], { concurrency: 3 })
  }
  if (dice.chance(0.7)) {
    const ask = (path: string, body: object) => ({ method: "POST", path, headers, body })
    yield* clients.send(dice, "listLinks", tenant, ask("/v1/portal/links/list", {}), {})
    const revoke = ask("/v1/portal/links/revoke", { link_id: (made.body as { link_id?: string }).link_id })
    yield* clients.send(dice, "revokeLink", tenant, revoke, { link })
  }
  yield* Effect.delay(open, dice.int(10, 3_000))
})

/** How long a key is kept, less what clocks may be off. */
const keptMillis = 24 * 3_600_000 - 300_000

/** Somebody sends a request again after a while, or another one with its key. */
const repeat: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = clients.keyed.filter((one) => one.tenant === tenant && clients.world.now - one.at < keptMillis)
  if (known.length === 0) return
  const { call, tries } = dice.pick(known)
  // The bytes of a request count only for a key in its headers.
  const isOther =
    call.headers["idempotency-key"] !== undefined && Object.keys(call.body ?? {}).length > 1 && dice.chance(0.3)
  yield* clients.sendKeyed(dice, call, tries, isOther)
})

/** What the tenant's own key reads with an empty body, and with a GET; and what the administrator reads of all. */
const read = {
  own: [
    ...[
      "jobs/list",
      "jobs/sweeps",
      "jobs/causes",
      "jobs/queue",
      "schedules/list",
      "workflows/list",
      "events/list",
      "events/types",
    ],
    "event-types/list",
    ...["webhooks/list", "webhooks/deliveries/list", "webhooks/deliveries/resends", "webhooks/deliveries/causes"],
    "webhooks/public-key",
  ],
  ofOrg: ["", "/keys", "/usage", "/audit", "/roles"],
  ofAll: [
    "/api/v0/overview",
    "/api/v0/endpoints/failing",
    "/api/v0/replicas",
    "/api/v0/people",
    "/api/v0/orgs/active",
    "/readyz",
    "/healthz",
  ],
}

const lists: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const path = dice.pick(read.own)
  yield* clients.own(dice, "list", tenant, path, {}, { path })
  const headers = { "x-api-key": tenant.key }
  const get = (kind: string, path: string, headers: Readonly<Record<string, string>>) =>
    clients.send(dice, kind, tenant, { method: "GET", path, headers }, { path })
  yield* get(
    "list",
    dice.pick(["/api/v0/orgs", "/api/v0/projects", ...read.ofOrg.map((part) => `/api/v0/orgs/${tenant.orgId}${part}`)]),
    headers,
  )
  if (dice.chance(0.3)) yield* get("readAll", dice.pick(read.ofAll), { authorization: `Bearer ${adminToken}` })
})

/** Reads one thing of each kind. */
const look: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const own = (path: string, body: object) => clients.own(dice, "look", tenant, path, body, { path })
  const get = (path: string) =>
    clients.send(dice, "look", tenant, { method: "GET", path, headers: { "x-api-key": tenant.key } }, { path })
  const [jobId, key] = [oneOf(dice, tenant.jobs), oneOf(dice, tenant.keys)]
  if (jobId !== undefined) {
    yield* clients.own(dice, "getJob", tenant, "jobs/get", { job_id: jobId }, { jobId })
    yield* own("jobs/logs", { job_id: jobId })
  }
  const scheduleId = oneOf(dice, tenant.schedules)
  if (scheduleId !== undefined) {
    yield* own("schedules/get", { schedule_id: scheduleId })
    yield* own("schedules/update", { schedule_id: scheduleId, priority: dice.int(0, 3) })
  }
  const [delivery] = (yield* own("webhooks/deliveries/list", { limit: 1 })).body?.deliveries ?? []
  if (delivery !== undefined) yield* own("webhooks/deliveries/get", { delivery_id: delivery.delivery_id })
  const [event] = (yield* own("events/list", { limit: 1 })).body?.events ?? []
  if (event !== undefined) yield* own("events/get", { event_id: event.event_id })
  if (key !== undefined) {
    yield* get(`/api/v0/orgs/${tenant.orgId}/keys/${key.id}`)
    yield* get(`/api/v0/orgs/${tenant.orgId}/keys/${key.id}/usage`)
  }
  const projectId = oneOf(dice, tenant.projects)
  if (projectId !== undefined) yield* get(`/api/v0/projects/${projectId}`)
  const externalId = `outside${dice.int(1, 4)}`
  yield* clients.own(dice, "getEndpoint", tenant, "webhooks/get", { external_id: externalId }, { externalId })
})

/** An org with settings that no other operation expects. */
const ownOrg = Effect.fnUntraced(function* (clients: Clients, dice: Dice) {
  const tenant = tenantOf(`t${clients.tenants.length + 1}x`)
  yield* clients.found(dice, tenant)
  return tenant.key === "" ? undefined : tenant
})

/** Runs effects at once, each after a time of its own. */
const spread = (dice: Dice, millis: number, all: ReadonlyArray<Effect.Effect<unknown>>) =>
  Effect.all(
    all.map((one) => Effect.delay(one, dice.int(0, millis))),
    { concurrency: "unbounded", discard: true },
  )

/** An org begins and ends to publish strictly, and its catalogue changes, while events are published. */
const publishStrictly: Operation = Effect.fnUntraced(function* (clients, _tenant, dice) {
  const tenant = yield* ownOrg(clients, dice)
  if (tenant === undefined) return
  const name = `${tenant.name}.paid`
  const path = `/api/v0/orgs/${tenant.orgId}`
  const set = (strict: boolean) =>
    clients.admin(dice, "setStrict", tenant, "PATCH", path, { strictEvents: strict }, { strict })
  const describe = (change: "create" | "update", version: number, field: string) => {
    const body = { schemas: { [version]: { type: "object", required: [field] } }, example: { [field]: 1 } }
    return clients.own(dice, "setSchema", tenant, `event-types/${change}`, { name, ...body }, { field })
  }
  const publish = Effect.suspend(() => {
    const field = dice.pick(["one", "two"])
    const data = { [field]: clients.name(tenant, "event") }
    return clients.own(dice, "strictPublish", tenant, "events/publish", { type: name, data }, { field }, true)
  })
  if ((yield* describe("create", 1, "one")).status !== 200) return
  const publishes = (times: number) => Array.from({ length: times }, () => publish)
  yield* spread(dice, dice.pick([10, 300]), [set(true), ...publishes(6)])
  yield* spread(dice, dice.pick([10, 300]), [describe("update", 2, "two"), ...publishes(8)])
  // Without its type nothing of it is in the catalogue.
  const remove = clients.own(dice, "setSchema", tenant, "event-types/delete", { name }, { field: "-" })
  const last = dice.pick([remove, set(false), undefined])
  if (last !== undefined) yield* spread(dice, dice.pick([10, 300]), [last, ...publishes(6)])
})

/** What a limit of an org counts: the path and the body of a creation. */
const counted = {
  projects: (name: string, orgId: string) => ["admin", "/api/v0/projects", { name, orgId }],
  keys: (name: string, orgId: string) => ["admin", `/api/v0/orgs/${orgId}/keys`, { name }],
  endpoints: (name: string) => [
    "own",
    "webhooks/create",
    { url: `https://${name}.example/hook`, signing_secret: signingSecret },
  ],
  schedules: (name: string) => ["own", "schedules/create", { workflow: name, cron: "0 0 1 1 *" }],
  unfinishedJobs: (name: string) => ["own", "jobs/create", { workflow: name }],
} as const satisfies Record<string, (name: string, orgId: string) => readonly [string, string, object]>

/** An org gets a limit, and everybody creates at once what it counts; then the limit is raised. */
const limitOrg: Operation = Effect.fnUntraced(function* (clients, _tenant, dice) {
  const tenant = yield* ownOrg(clients, dice)
  if (tenant === undefined) return
  const { orgId } = tenant
  const limited = dice.pick(Object.keys(counted) as Array<keyof typeof counted>)
  const set = (limit: number) => {
    const limits = { [limited]: limit }
    return clients.admin(dice, "limitOrg", tenant, "PATCH", `/api/v0/orgs/${orgId}`, { limits }, { limited, limit })
  }
  const create = Effect.suspend(() => {
    const [by, path, body] = counted[limited](clients.name(tenant, "counted"), orgId)
    return by === "own"
      ? clients.own(dice, "createCounted", tenant, path, body, { limited }, true)
      : clients.admin(dice, "createCounted", tenant, "POST", path, body, { limited }, true)
  })
  const limit = dice.int(2, 5)
  if ((yield* set(limit)).status !== 200) return
  const creates = Array.from({ length: limit + 5 }, () => create)
  yield* spread(dice, dice.pick([20, 3_000]), creates)
  yield* Effect.sleep(dice.pick([0, 8_000]))
  yield* spread(dice, 50, [create, create])
  if ((yield* set(limit + 2)).status === 200) yield* spread(dice, dice.pick([20, 3_000]), creates)
})

/** Failed jobs are retried by a filter while others fill their org, and who has created those may be gone. */
const retryAtLimit: Operation = Effect.fnUntraced(function* (clients, _tenant, dice) {
  const [creator] = clients.pair(dice) ?? []
  const tenant = creator && (yield* ownOrg(clients, dice))
  if (creator === undefined || tenant === undefined) return
  const workflow = `${clients.name(tenant, "full")}-work`
  const path = `/api/v0/orgs/${tenant.orgId}`
  const set = (unfinishedJobs: number) =>
    clients.admin(dice, "setLimit", tenant, "PATCH", path, { limits: { unfinishedJobs } })
  const limit = dice.int(2, 5)
  if ((yield* set(limit)).status !== 200) return
  const fields = Array.from({ length: limit }, () => ({ max_attempts: 1 }))
  const fill = at(creator)(jobsOf(clients, tenant, dice, workflow, fields))
  const first = yield* fill
  const { body } = yield* claimJobs(clients, tenant, dice, { workflow, limit, lease_seconds: 60 })
  for (const { attempt, job_id: jobId } of body?.jobs ?? [])
    yield* report(clients, tenant, dice, { jobId, attempt, leaseSeconds: 60 }, { fail: 1 })
  const second = yield* fill
  if (dice.chance(0.7)) clients.disturb({ kind: "crash", millis: 5_000, seed: 0 }, creator)
  yield* Effect.sleep(8_000)
  yield* clients.own(dice, "retryJobs", tenant, "jobs/retry", { filter: { workflow } }, { workflow })
  yield* Effect.sleep(6_000)
  // What another replica has created meanwhile may be unknown.
  const isByOne = [...first.keyed, ...second.keyed].every(({ replica }) => replica === creator.name)
  const args = { limit: isByOne ? limit : Infinity }
  yield* clients.own(dice, "unfinished", tenant, "jobs/list", { status: "queued" }, args)
  yield* set(100)
})

/** Somebody runs a schedule, beside its own times. */
const runByHand: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const scheduleId = oneOf(dice, tenant.schedules)
  if (scheduleId === undefined) return
  const headers = { "x-api-key": tenant.key }
  const call = { method: "POST", path: "/v1/schedules/run", headers, body: { schedule_id: scheduleId } }
  // Each request makes a job.
  yield* clients.send(dice, "runSchedule", tenant, call, { scheduleId }, { tries: 1 })
})

/** A job whose key keeps others out for a while after its creation, also when it has ended. */
const uniqueWithin: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "within")}-work`
  const seconds = dice.int(6, 20)
  const create = Effect.suspend(() => {
    const input = { mark: clients.name(tenant, "job") }
    const job = { workflow, input, unique: { key: `${tenant.name}-key`, within_seconds: seconds } }
    return clients.own(dice, "createWithin", tenant, "jobs/create", job, { workflow, seconds }, dice.chance(0.5))
  })
  for (let n = 0; n < 6; n++) {
    yield* spread(dice, 30, [create, create])
    const { body } = yield* claimJobs(clients, tenant, dice, { workflow, limit: 1, lease_seconds: 10 })
    for (const { attempt, job_id: jobId } of body?.jobs ?? [])
      yield* report(clients, tenant, dice, { jobId, attempt, leaseSeconds: 10 }, { complete: 1 })
    yield* Effect.sleep(dice.int(500, 9_000))
  }
})

/** A key of which one job waits while another runs; what runs may fail and wait again. */
const uniqueQueued: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "queued")}-work`
  const create = Effect.suspend(() => {
    const input = { mark: clients.name(tenant, "job") }
    const job = { workflow, input, unique: { key: `${tenant.name}-key`, states: ["queued"] }, retry_delay_seconds: 1 }
    return clients.own(dice, "createQueued", tenant, "jobs/create", job, { workflow }, dice.chance(0.5))
  })
  for (let n = 0; n < 4; n++) {
    yield* spread(dice, 30, [create, create])
    const { body } = yield* claimJobs(clients, tenant, dice, { workflow, limit: 1, lease_seconds: 5 })
    const ends = (body?.jobs ?? []).map(({ attempt, job_id: jobId }) =>
      report(clients, tenant, dice, { jobId, attempt, leaseSeconds: 5 }, { complete: 1, fail: 2 }),
    )
    yield* spread(dice, 40, [create, ...(dice.chance(0.8) ? ends : [])])
    yield* Effect.sleep(dice.pick([0, 1_500, 6_000]))
  }
})

/** One worker claims the jobs of a workflow one by one: the most urgent first, then the oldest. */
const claimInTurn: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "turn")}-work`
  const urgencies = Array.from({ length: dice.int(3, 8) }, () => dice.pick([0, 0, 0, 5, -5]))
  const fields = urgencies.map((priority) => ({ priority }))
  if ((yield* jobsOf(clients, tenant, dice, workflow, fields)).status !== 200) return
  for (let n = 0; n < urgencies.length; n++) {
    const { body } = yield* claimJobs(clients, tenant, dice, { workflow, limit: 1, lease_seconds: 60 })
    for (const { attempt, job_id: jobId } of body?.jobs ?? [])
      yield* report(clients, tenant, dice, { jobId, attempt, leaseSeconds: 60 }, { complete: 1 })
  }
})

/** An endpoint says that it is gone, which an alert tells; now and then it is changed meanwhile. */
const alertOnGone: Operation = Effect.fnUntraced(function* (clients, _tenant, dice) {
  const tenant = yield* ownOrg(clients, dice)
  if (tenant === undefined) return
  const told = `https://${clients.name(tenant, "chat")}.example/told`
  const alert = { name: clients.name(tenant, "alert"), condition: "endpoint_deactivated", target: "slack", url: told }
  const path = `/api/v0/orgs/${tenant.orgId}/alerts`
  const made = yield* clients.admin(dice, "createAlert", tenant, "POST", path, alert, { told }, true)
  const url = `https://${clients.name(tenant, "gone")}.example/hook`
  const endpoint = { url, signing_secret: signingSecret }
  yield* clients.own(dice, "createEndpoint", tenant, "webhooks/create", endpoint, { url }, true)
  clients.receivers.behave(url, "gone")
  if (made.status !== 200) return
  if (dice.chance(0.5)) {
    yield* publish(clients, tenant, dice)
    // It is looked at every minute; its target fails now and then.
    return yield* Effect.sleep(140_000)
  }
  // Its name changes while it is being told.
  clients.receivers.behave(told, "slow")
  yield* publish(clients, tenant, dice)
  const isTold = () => clients.receivers.received.some((one) => one.url === told)
  for (let n = 0; n < 700 && !isTold(); n++) yield* Effect.sleep(200)
  const name = clients.name(tenant, "alert")
  const own = `${path}/${made.body.alertId}`
  if ((yield* clients.admin(dice, "changeAlert", tenant, "PATCH", own, { name }, { name })).status !== 200) return
  yield* Effect.sleep(20_000)
  yield* clients.admin(dice, "readAlerts", tenant, "GET", path, undefined, { name })
})

/** Somebody reads the audit log of an org until now, after the clock of a replica that wrote in it stepped twice. */
const readAudit: Operation = Effect.fnUntraced(function* (clients, _tenant, dice) {
  const tenant = yield* ownOrg(clients, dice)
  const [writer] = clients.pair(dice) ?? []
  if (tenant === undefined || writer === undefined) return
  for (let n = 0; n < 2; n++) {
    clients.disturb({ kind: "clock step", millis: 1, seed: dice.bits() }, writer)
    yield* at(writer)(keyOf(clients, tenant, dice))
  }
  const path = `/api/v0/orgs/${tenant.orgId}/audit`
  const list = (query: string, args: object) =>
    clients.admin(dice, "readAudit", tenant, "GET", `${path}?limit=100${query}`, undefined, args)
  const { body, status } = yield* list("", {})
  if (status !== 200) return
  const until = new Date(epochMillis + clients.world.now).toISOString()
  const ids = body.entries!.filter((one) => one.at < until).map(({ id }) => id)
  yield* list(`&until=${until}`, { ids })
})

const operations: Readonly<Record<OperationName, Operation>> = {
  createKey,
  validateKey,
  updateKey,
  changeLimits,
  useSession,
  signInPeople,
  rotateKey,
  deleteKey,
  revokeKey,
  outOfTouch,
  changeRole,
  describeType,
  importKeys,
  exchange,
  exhaust,
  addCredits,
  createEndpoint,
  updateEndpoint,
  deleteEndpoint,
  publish,
  lateRecord,
  createJob,
  createJobs,
  work,
  lateWorker,
  lastLease,
  duel,
  cancelJob,
  retryJob,
  sweepJobs,
  uniqueJobs,
  limitWorkflow,
  policies,
  createSchedule,
  deleteSchedule,
  retryDelivery,
  recover,
  resend,
  createOrgs,
  deleteOrg,
  endWhileSending,
  createProject,
  deleteProject,
  register,
  promote,
  storeDocs,
  portal,
  repeat,
  lists,
  look,
  publishStrictly,
  limitOrg,
  retryAtLimit,
  runByHand,
  uniqueWithin,
  uniqueQueued,
  claimInTurn,
  alertOnGone,
  readAudit,
}
