import { Effect, Fiber } from "effect"
import type { Done, KeyedTry, Try } from "./history.ts"
import { baseUrl, type Issuers } from "./network.ts"
import { adminToken, type Answer, type Call, noAnswer, type Replica } from "./replica.ts"
import { type Actor, type Dice, epochMillis, type World } from "./world.ts"

/** How often each operation comes, compared with the others. */
export const weights = {
  createKey: 4,
  validateKey: 14,
  updateKey: 3,
  changeLimits: 1,
  useSession: 1,
  rotateKey: 1,
  deleteKey: 2,
  revokeKey: 2,
  exhaust: 0.5,
  createEndpoint: 2,
  updateEndpoint: 1,
  deleteEndpoint: 0.5,
  publish: 10,
  createJob: 5,
  work: 8,
  lateWorker: 2,
  duel: 2,
  cancelJob: 0.5,
  createSchedule: 0.7,
  deleteSchedule: 0.2,
  retryDelivery: 0.7,
  recover: 0.5,
  createOrgs: 0.3,
  deleteOrg: 0.5,
  createProject: 1,
  deleteProject: 0.7,
  register: 2,
  promote: 0.7,
  portal: 0.7,
  repeat: 2,
  lists: 2,
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
}

export const usualHabits: Habits = { ordered: 0.3, limited: 0.2, batches: 0.2, twins: 0.15, failing: 0.03 }

/** An API key that a client knows. */
interface KnownKey {
  readonly id: string
  readonly key: string
  readonly isLimited: boolean
  readonly projectId: string | undefined
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

/** The clients of all tenants, which remember everything that they did. */
export class Clients {
  readonly world: World
  readonly actor: Actor
  readonly replicas: ReadonlyArray<Replica>
  readonly issuers: Issuers
  readonly done: Array<Done> = []
  /** The requests with idempotency keys that were answered with success. */
  readonly keyed: Array<Keyed> = []
  readonly tenants: Array<Tenant> = []
  readonly habits: Habits
  #made = 0

  constructor(world: World, actor: Actor, replicas: ReadonlyArray<Replica>, issuers: Issuers, habits: Habits) {
    this.world = world
    this.habits = habits
    this.issuers = issuers
    this.actor = actor
    this.replicas = replicas
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
      let answer: Answer = noAnswer
      while (tries.length < most) {
        const up = this.replicas.filter(({ state }) => state !== "dead")
        const replica = up.length === 0 ? undefined : dice.pick(up)
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

/** Validates a key, as a gateway does. */
const validate = (clients: Clients, tenant: Tenant, dice: Dice, { id, key }: KnownKey) => {
  const headers = { authorization: `Bearer ${adminToken}` }
  const call = { method: "POST", path: "/api/v0/keys/validate", headers, body: { key } }
  return clients.send(dice, "validateKey", tenant, call, { keyId: id }, { tries: 3 })
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
  const path = `/api/v0/orgs/${tenant.orgId}/keys/${known.id}`
  const keyId = known.id
  const end = dice.chance(0.7)
    ? clients.admin(dice, "deleteKey", tenant, "DELETE", path, undefined, { keyId })
    : clients.admin(dice, "updateKey", tenant, "PATCH", path, { enabled: false }, { keyId, enabled: false })
  yield* whileUsed(clients, tenant, dice, known, end)
})

/** A key with more credits than a replica leases at once is used up, also after a pause, or a change of its credits. */
const exhaust: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const name = clients.name(tenant, "key")
  const credits = { remaining: 150 }
  const path = `/api/v0/orgs/${tenant.orgId}/keys`
  const made = yield* clients.admin(dice, "createKey", tenant, "POST", path, { name, credits }, { name, credits }, true)
  if (made.status !== 200) return
  const { id, key } = made.body
  const known = { id, key, isLimited: true, projectId: undefined }
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
    yield* clients.admin(dice, "updateKey", tenant, "PATCH", `${path}/${id}`, change, { keyId: id, ...change })
    if (dice.chance(0.3)) yield* use(20)
    yield* Effect.sleep(11_000)
    return yield* use(130)
  }
  // Often idle for a moment, so that replicas return what they have leased.
  yield* Effect.sleep(dice.pick([0, 3_000, 20_000]))
  for (let n = dice.int(0, 4); n > 0; n--) {
    yield* use(dice.int(5, 20))
    yield* Effect.sleep(dice.int(2_000, 5_000))
  }
  yield* use(dice.int(60, 100))
  yield* Effect.sleep(dice.pick([0, 20_000]))
  yield* use(60)
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

const rotateKey: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const known = oneOf(dice, tenant.keys)
  if (known === undefined) return
  const overlapSeconds = dice.pick([0, 30])
  const done = yield* clients.admin(
    dice,
    "rotateKey",
    tenant,
    "POST",
    `/api/v0/orgs/${tenant.orgId}/keys/${known.id}/rotate`,
    { overlapSeconds },
    { keyId: known.id, overlapSeconds },
    true,
  )
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
  const known = oneOf(dice, tenant.keys)
  if (known === undefined) return
  const signIn = { method: "POST", path: "/api/v0/sessions", headers: { "x-api-key": known.key } }
  const { cookie } = yield* clients.send(dice, "signIn", tenant, signIn, { keyId: known.id }, { tries: 3 })
  if (cookie === undefined) return
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

const createEndpoint: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const url = `https://${clients.name(tenant, "receiver")}.example/hook`
  const ordered = dice.chance(clients.habits.ordered)
  const settings = {
    ...(ordered ? { ordered } : {}),
    ...(dice.chance(clients.habits.limited) ? { max_per_second: dice.pick([1, 5]) } : {}),
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
  if (done.status === 200) tenant.endpoints.push({ id: done.body.webhook_endpoint_id, url })
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
    data: { mark: clients.name(tenant, "event") },
    ...(dice.chance(0.4) ? { idempotency_key: clients.name(tenant, "event") } : {}),
  })
  if (dice.chance(clients.habits.batches)) {
    const events = Array.from({ length: dice.int(2, 12) }, one)
    const marks = events.map(({ data }) => data.mark)
    return yield* clients.own(dice, "publishBatch", tenant, "events/publish-batch", { events }, { marks }, true)
  }
  const event = one()
  // Of the two ways to repeat a request safely, each alone is enough.
  const hasOwnKey = event.idempotency_key !== undefined
  yield* clients.own(dice, "publish", tenant, "events/publish", event, { marks: [event.data.mark] }, !hasOwnKey)
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

/** A worker claims jobs, works on each, stalls now and then, and reports. */
const work: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const claimed = yield* clients.send(
    dice,
    "claim",
    tenant,
    {
      method: "POST",
      path: "/v1/jobs/claim",
      headers: { "x-api-key": tenant.key },
      body: { limit: dice.int(1, 3), lease_seconds: 10, wait_seconds: dice.pick([0, 0, 20]) },
    },
    { leaseSeconds: 10 },
    { tries: 3 },
  )
  for (const { attempt, job_id } of claimed.body?.jobs ?? []) {
    const jobId = job_id
    // A worker that stalls reports after its lease has expired.
    yield* Effect.sleep(dice.chance(0.25) ? dice.int(8_000, 40_000) : dice.int(10, 3_000))
    if (dice.chance(0.3)) {
      yield* clients.own(
        dice,
        "heartbeat",
        tenant,
        "jobs/heartbeat",
        { job_id, attempt, lease_seconds: 10 },
        { jobId, attempt },
      )
      yield* Effect.sleep(dice.int(10, 5_000))
    }
    if (dice.chance(0.1)) continue
    if (dice.chance(0.7)) {
      const result = { mark: clients.name(tenant, "result") }
      const report = { job_id, attempt, result }
      const complete = clients.own(dice, "complete", tenant, "jobs/complete", report, { jobId, attempt, result })
      yield* complete
      if (dice.chance(0.15)) yield* complete
    } else {
      const retry = dice.chance(0.5)
      const error = clients.name(tenant, "error")
      yield* clients.own(
        dice,
        "fail",
        tenant,
        "jobs/fail",
        { job_id, attempt, error, retry },
        { jobId, attempt, retry, error },
      )
    }
  }
})

/** A worker reports after its lease, while another one has the job. */
const lateWorker: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "late")}-work`
  const headers = { "x-api-key": tenant.key }
  const claim = (seconds: number, wait: number) =>
    clients.send(
      dice,
      "claim",
      tenant,
      {
        method: "POST",
        path: "/v1/jobs/claim",
        headers,
        body: { workflow, limit: 1, lease_seconds: seconds, wait_seconds: wait },
      },
      { leaseSeconds: seconds },
      { tries: 3 },
    )
  const made = yield* clients.own(
    dice,
    "createJob",
    tenant,
    "jobs/create",
    { workflow, input: { mark: clients.name(tenant, "job") } },
    { workflow },
    true,
  )
  if (made.status !== 200) return
  const jobId = made.body.job_id
  const first = yield* claim(dice.pick([1, 3]), 0)
  if (first.body?.jobs?.length !== 1) return
  const second = yield* claim(30, 20)
  if (second.body?.jobs?.length !== 1) return
  const report = (attempt: number) => {
    const result = { mark: clients.name(tenant, "result") }
    const error = clients.name(tenant, "error")
    const retry = dice.chance(0.5)
    return dice.weighted({ complete: 3, fail: 1, heartbeat: 1 }) === "complete"
      ? clients.own(
          dice,
          "complete",
          tenant,
          "jobs/complete",
          { job_id: jobId, attempt, result },
          { jobId, attempt, result },
        )
      : dice.chance(0.5)
        ? clients.own(
            dice,
            "fail",
            tenant,
            "jobs/fail",
            { job_id: jobId, attempt, error, retry },
            { jobId, attempt, retry, error },
          )
        : clients.own(
            dice,
            "heartbeat",
            tenant,
            "jobs/heartbeat",
            { job_id: jobId, attempt, lease_seconds: 5 },
            { jobId, attempt },
          )
  }
  const [late, current] = [first.body.jobs[0]!.attempt, second.body.jobs[0]!.attempt]
  yield* Effect.all([report(late), Effect.delay(report(current), dice.int(0, 3_000))], { concurrency: 2 })
})

/** Several reports about one job at the same time: by its worker, by an old version of it, and by an administrator. */
const duel: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const workflow = `${clients.name(tenant, "duel")}-work`
  const made = yield* clients.own(
    dice,
    "createJob",
    tenant,
    "jobs/create",
    {
      workflow,
      input: { mark: clients.name(tenant, "job") },
      max_attempts: dice.pick([1, 3, 3]),
      retry_delay_seconds: dice.int(1, 2),
    },
    { workflow },
    true,
  )
  if (made.status !== 200) return
  const jobId = made.body.job_id
  const leaseSeconds = dice.pick([1, 10])
  const claim = clients.send(
    dice,
    "claim",
    tenant,
    {
      method: "POST",
      path: "/v1/jobs/claim",
      headers: { "x-api-key": tenant.key },
      body: { workflow, limit: 1, lease_seconds: leaseSeconds },
    },
    { leaseSeconds },
    { tries: 3 },
  )
  const { body } = yield* claim
  const number = body?.jobs?.[0]?.attempt
  if (number === undefined) return
  const report = () => {
    // A worker may report without its attempt: then any attempt's report counts.
    const attempt = dice.chance(0.3) ? undefined : number
    const result = { mark: clients.name(tenant, "result") }
    const error = clients.name(tenant, "error")
    const retry = dice.chance(0.6)
    switch (dice.weighted({ complete: 4, fail: 4, heartbeat: 1, cancel: 0.5 })) {
      case "complete":
        return clients.own(
          dice,
          "complete",
          tenant,
          "jobs/complete",
          { job_id: jobId, attempt, result },
          {
            ...{ jobId, attempt, result },
          },
        )
      case "fail":
        return clients.own(
          dice,
          "fail",
          tenant,
          "jobs/fail",
          { job_id: jobId, attempt, error, retry },
          {
            ...{ jobId, attempt, retry, error },
          },
        )
      case "heartbeat":
        return clients.own(
          dice,
          "heartbeat",
          tenant,
          "jobs/heartbeat",
          { job_id: jobId, attempt: number, lease_seconds: 5 },
          {
            ...{ jobId, attempt: number },
          },
        )
      default:
        return clients.own(dice, "cancelJob", tenant, "jobs/cancel", { job_id: jobId }, { jobId })
    }
  }
  if (leaseSeconds === 1) yield* Effect.sleep(dice.int(0, 1_500))
  const spread = dice.pick([3, 60, 500])
  const all = [...Array.from({ length: dice.int(2, 4) }, report), ...(dice.chance(0.6) ? [claim] : [])]
  yield* Effect.all(
    all.map((one) => Effect.delay(one, dice.next() * spread)),
    { concurrency: "unbounded" },
  )
  if (dice.chance(0.5)) yield* report()
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

const recover: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const endpoint = oneOf(dice, tenant.endpoints)
  if (endpoint === undefined) return
  const since = "2029-12-31T00:00:00.000Z"
  yield* clients.own(
    dice,
    "recover",
    tenant,
    "webhooks/deliveries/recover",
    { webhook_endpoint_id: endpoint.id, since },
    { endpointId: endpoint.id, url: endpoint.url },
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

/** A portal link is opened by two at once, and later again. */
const portal: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const made = yield* clients.own(dice, "portalLink", tenant, "portal/link", {})
  if (made.status !== 200) return
  const token = made.body.url.slice(`${baseUrl}/console/portal#`.length)
  const link = token.slice(-8)
  const call = { method: "POST", path: "/api/v0/sessions/portal", headers: {}, body: { token } }
  const open = clients.send(dice, "openPortal", tenant, call, { link }, { tries: 3 })
  yield* Effect.all([open, Effect.delay(open, dice.pick([0, 0, 50]))], { concurrency: 2 })
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

const lists: Operation = Effect.fnUntraced(function* (clients, tenant, dice) {
  const path = dice.pick(["jobs/list", "webhooks/list", "schedules/list", "events/list", "webhooks/deliveries/list"])
  yield* clients.own(dice, "list", tenant, path, {}, { path })
})

const operations: Readonly<Record<OperationName, Operation>> = {
  createKey,
  validateKey,
  updateKey,
  changeLimits,
  useSession,
  rotateKey,
  deleteKey,
  revokeKey,
  exhaust,
  createEndpoint,
  updateEndpoint,
  deleteEndpoint,
  publish,
  createJob,
  work,
  lateWorker,
  duel,
  cancelJob,
  createSchedule,
  deleteSchedule,
  retryDelivery,
  recover,
  createOrgs,
  deleteOrg,
  createProject,
  deleteProject,
  register,
  promote,
  portal,
  repeat,
  lists,
}
