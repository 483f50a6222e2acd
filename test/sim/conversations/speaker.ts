import { OpenApi } from "effect/http-api"
import { Api } from "#src/http/api/Api.ts"
import type { Answer } from "../replica.ts"
import { Dice } from "../world.ts"
import { converse, type Said, type Step } from "./conversation.ts"

/** What a conversation is about: the groups of operations of the API, and how often each comes. */
export const themes = {
  keys: { keys: 8, roles: 2, orgs: 0.5, projects: 0.5, audit: 0.3 },
  jobs: { jobs: 10, workflows: 2, schedules: 0.3, events: 0.5 },
  limits: { jobs: 8, workflows: 3, orgs: 1.5, schedules: 1 },
  schedules: { schedules: 6, jobs: 3, workflows: 1 },
  webhooks: { webhooks: 4, events: 6, deliveries: 4, eventTypes: 0.5 },
  catalogue: { eventTypes: 5, events: 5, webhooks: 2, orgs: 1, deliveries: 1 },
  orgs: { orgs: 4, projects: 3, keys: 2, audit: 2, activity: 1, alerts: 2, serviceAlerts: 1 },
  deployments: { projects: 4, deployments: 6, docs: 1, orgs: 0.7, webhooks: 0.5 },
  portal: { portal: 4, sessions: 3, keys: 3, webhooks: 2, events: 1, deliveries: 1 },
} as const satisfies Readonly<Record<string, Readonly<Record<string, number>>>>
export type Theme = keyof typeof themes

/** Operations that no conversation has, each with the reason. */
const leftOut: ReadonlySet<string> = new Set([
  // A stream without an end, and a model or a thread outside of the world answers.
  ...["live.follow", "chat.answer", "chat.feedback", "docs.mcp", "docs.questions", "docs.mostAsked", "docs.put"],
  // Figures of the process, and what GitHub signs.
  ...["activity.replicas", "system.readyz", "system.healthz", "system.jwks", "secretScanning.github"],
])

/** How much a theme is about the feature of a file of `src`. */
const shareOf = (theme: Theme, file: string) =>
  (themes[theme] as Readonly<Record<string, number>>)[file.split("/")[1]!] ?? 0

/** The themes about the feature of a file of `src`; all, if none is. */
export const themesAbout = (file: string): ReadonlyArray<Theme> => {
  const all = Object.keys(themes) as Array<Theme>
  const own = all.filter((theme) => shareOf(theme, file) >= 1)
  return own.length > 0 ? own : all
}

interface Schema {
  readonly $ref?: string
  readonly const?: unknown
  readonly enum?: ReadonlyArray<unknown>
  readonly anyOf?: ReadonlyArray<Schema>
  readonly oneOf?: ReadonlyArray<Schema>
  readonly allOf?: ReadonlyArray<Schema>
  readonly type?: string | ReadonlyArray<string>
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: ReadonlyArray<string>
  readonly additionalProperties?: boolean | Schema
  readonly items?: Schema
  readonly minItems?: number
  readonly maxItems?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly examples?: ReadonlyArray<unknown>
}
interface Operation {
  readonly id: string
  readonly group: string
  readonly method: string
  readonly path: string
  readonly body: Schema | undefined
  readonly queries: ReadonlyArray<{ readonly name: string; readonly required?: boolean; readonly schema: Schema }>
  readonly isKeyed: boolean
}

type Parameter = Operation["queries"][number] & { readonly in: string }
const document = OpenApi.fromApi(Api) as unknown as {
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> }
  readonly paths: Readonly<
    Record<
      string,
      Readonly<
        Record<
          string,
          {
            readonly operationId: string
            readonly parameters?: ReadonlyArray<Parameter>
            readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Schema }>> }
          }
        >
      >
    >
  >
}

const operations: ReadonlyArray<Operation> = Object.entries(document.paths)
  .flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId: id, parameters = [], requestBody }]) => ({
      id,
      group: id.split(".")[0]!,
      method: method.toUpperCase(),
      path,
      body: requestBody?.content["application/json"]?.schema,
      queries: parameters.filter((one) => one.in === "query"),
      isKeyed: parameters.some(({ name }) => name === "idempotency-key"),
    })),
  )
  .filter(({ id }) => !leftOut.has(id))

/** Whether an operation makes what others are about. */
const makes = (id: string) => /\.(create|publish|claim|complete|validate|register)/.test(id)

/** How often an operation comes among those of its group: what makes things more often than what ends them. */
const weightOf = ({ id, method }: Operation) => {
  if (/\.(remove|delete|revoke)/.test(id)) return 0.4
  if (id === "jobs.claim" || id === "deliveries.list") return 6
  if (makes(id)) return 3
  return method === "GET" || /\.(list|get)/.test(id) ? 0.7 : 1.2
}

/** The name of what the member `id` of an answer, or of a request, is about. */
const nouns: Readonly<Record<string, string>> = {
  webhooks: "webhook_endpoint_id",
  events: "event_id",
  deliveries: "delivery_id",
  alerts: "alertId",
  serviceAlerts: "serviceAlertId",
}

/** A request has exactly one of these: what it is about. */
const oneOf: ReadonlyArray<ReadonlyArray<string>> = [
  ["id", "webhook_endpoint_id"],
  ["job_id", "filter"],
  ["signing_secret", "generate_signing_secret"],
]
/** A request has at most one of these. */
const atMostOneOf: ReadonlyArray<ReadonlyArray<string>> = [
  ["workflow", "workflows"],
  ["unique", "idempotency_key"],
  ["remaining", "add"],
]
/** Members that come together, or not at all. */
const together: Readonly<Record<string, string>> = {
  debounce_seconds: "unique",
  callback_secret: "callback_url",
  dry_run: "filter",
}

const receivers = ["well", "well", "well", "fails", "busy", "gone", "slow"].map((manner) => `https://${manner}.example`)

/** How many seconds pass now and then; a conversation has one of these. */
const waits = [
  [5, 20, 60, 200],
  [5, 60, 700, 4_000],
  [20, 200, 4_000, 90_000],
] as const

/**
 * The share of the operations that a conversation has, and of the optional members that it often uses. Few of them meet
 * each other in more orders than all would.
 */
const sharesInPlay = [0.15, 0.4] as const
/** How much less a conversation makes what it has made before: all happens to few things, or each thing is new. */
const thrifts = [1, 4] as const

interface Page {
  readonly nextCursor?: unknown
  readonly next_cursor?: unknown
}
/** The same list from a cursor on. */
const onPage = (step: Said, cursor: string): Said => {
  if (step.method !== "GET") return { ...step, body: { ...(step.body as object), cursor } }
  const [path, query = ""] = step.path.split("?")
  const others = query.split("&").filter((one) => one !== "" && !one.startsWith("cursor="))
  return { ...step, path: `${path}?${[...others, `cursor=${cursor}`].join("&")}` }
}

interface Claimed {
  readonly job_id: string
  readonly attempt: number
  readonly lease_expires_at?: string
}

/** Makes the next request of a conversation out of the definition of the API, and what has been answered. */
class Speaker {
  readonly #dice: Dice
  readonly #theme: Readonly<Record<string, number>>
  /** What was answered, by the name of the member. */
  readonly #known = new Map<string, Array<string>>()
  #queue: Array<Step> = []
  /** How often each operation was asked for. */
  readonly #done = new Map<string, number>()
  readonly #operations: ReadonlyArray<Operation>
  /** How often each optional member is used. */
  readonly #shares = new Map<string, number>()
  readonly #waits: ReadonlyArray<number>
  /** How often a request is sent once more. */
  readonly #repeats: number
  readonly #shareOfMembers: number
  readonly #thrift: number
  readonly #said: Array<Said> = []
  /** How often the other org is asked. */
  readonly #shareOfOther: number
  /** Whether everything that the request names was there once. */
  #isSound = true

  constructor(dice: Dice, theme: Theme) {
    this.#dice = dice
    const weights = themes[theme]
    const shareInPlay = dice.pick(sharesInPlay)
    this.#operations = operations.filter(({ group, id }) => group in weights && (makes(id) || dice.chance(shareInPlay)))
    this.#theme = Object.fromEntries(
      Object.entries(weights).filter(([group]) => this.#operations.some((one) => one.group === group)),
    )
    this.#waits = dice.pick(waits)
    this.#repeats = dice.pick([0, 0.05, 0.15])
    this.#shareOfMembers = dice.pick(sharesInPlay)
    this.#thrift = dice.pick(thrifts)
    this.#shareOfOther = dice.pick([0.05, 0.05, 0.3])
    const org = (name: string): Step => ({ as: "admin", method: "POST", path: "/api/v0/orgs", body: { name } })
    const key = (orgId: string): Step => ({
      as: "admin",
      method: "POST",
      path: `/api/v0/orgs/${orgId}/keys`,
      body: { name: "own" },
    })
    const endpoint = { url: "https://well.example/all", signing_secret: "whsec_c2VjcmV0IG9mIHRoZSBzaW11bGF0aW9u" }
    this.#queue = [
      org("acme"),
      key("<id 1>"),
      org("beta"),
      key("<id 3>"),
      { as: "admin", method: "PATCH", path: "/api/v0/orgs/<id 1>", body: { owners: ["acme1"] } },
      { as: "<key 1>", method: "POST", path: "/v1/webhooks/create", body: endpoint },
    ]
  }

  /** Remembers what an answer has told, by the names of its members. */
  hear(step: Said, { body }: Pick<Answer, "body">) {
    const { group, id } = this.#operationOf(step)
    this.#done.set(id, (this.#done.get(id) ?? 0) + 1)
    const learn = (name: string, value: string) => {
      const values = this.#known.get(name) ?? []
      this.#known.set(name, [...values.filter((one) => one !== value), value])
    }
    const walk = (value: unknown, name: string): void => {
      if (Array.isArray(value)) return value.forEach((one) => walk(one, name))
      if (typeof value === "object" && value !== null) {
        for (const [name, one] of Object.entries(value)) walk(one, name)
        return
      }
      const kind = typeof value === "string" ? /^<(\w+) \d+>$/.exec(value)?.[1] : undefined
      // The key of most requests stays.
      if (kind === undefined || value === "<id 2>" || value === "<id 4>") return
      if (kind === "portal") return learn(kind, value as string)
      if (name === "alertId") return learn(nouns[group] ?? name, value as string)
      const isOwn = name === "id" || name === "token"
      learn(
        isOwn
          ? (nouns[group] ?? `${group}.${name}`)
          : name === "nextCursor"
            ? "next_cursor"
            : name.replace(/_ids$/, "_id"),
        value as string,
      )
    }
    walk(body, "")
    const { nextCursor, next_cursor: cursor = nextCursor } = (body ?? {}) as Page
    if (typeof cursor === "string" && this.#dice.chance(0.5)) this.#queue.push(onPage(step, cursor))
    for (const job of (body as { readonly jobs?: ReadonlyArray<Claimed> } | undefined)?.jobs ?? [])
      if (job.lease_expires_at !== undefined && step.path.endsWith("/claim"))
        this.#queue.push(...this.#workOn(step.as, job))
  }

  /** A request once more, often the last one, or now and then the same of another thing. */
  #echo(): Said {
    const last = this.#said[this.#said.length - 1 - Math.floor(this.#dice.next() ** 3 * this.#said.length)]!
    const text = JSON.stringify(last)
    const isNamed = (id: string) => text.includes(id)
    const things = [...this.#known.values()].find((values) => values.some(isNamed))
    if (things === undefined || !this.#dice.chance(0.4)) return last
    return JSON.parse(text.replaceAll(things.find(isNamed)!, this.#dice.pick(things))) as Said
  }

  /** What a worker reports of a job: often its end, now and then nothing more. */
  #workOn(as: string, { attempt, job_id }: Claimed): ReadonlyArray<Step> {
    const dice = this.#dice
    const report = (what: string, body: object): Step => ({
      as,
      method: "POST",
      path: `/v1/jobs/${what}`,
      body: { job_id, ...(dice.chance(0.7) ? { attempt } : {}), ...body },
    })
    const on = dice.pick([
      [],
      [],
      [{ wait: 20 }],
      [report("heartbeat", { lease_seconds: 30, progress: 0.5 })],
      [report("log", { lines: [{ text: "half" }, { text: "done", level: "warn" }] })],
      [report("step", { name: "first", result: 1 }), { wait: 5 }],
    ] satisfies ReadonlyArray<ReadonlyArray<Step>>)
    const end = dice.pick([
      [report("complete", { result: { amount: 5 } })],
      [report("complete", {})],
      [report("fail", { error: "no room", retry: true })],
      [report("fail", { error: "no room", retry: true }), { wait: 60 }],
      [report("fail", { error: "no room" })],
      [report("fail", { error: "no room" }), { as, method: "POST", path: "/v1/jobs/retry", body: { job_id } }],
      [{ wait: 60 }],
    ] satisfies ReadonlyArray<ReadonlyArray<Step>>)
    return [...on, ...end]
  }

  /** The next request, or the next wait. */
  next(): Step {
    const planned = this.#queue.shift()
    if (planned !== undefined) return planned
    const dice = this.#dice
    if (dice.chance(0.13)) return { wait: dice.pick(this.#waits) }
    if (this.#said.length > 0 && dice.chance(this.#repeats)) return this.#echo()
    const group = dice.weighted(this.#theme)
    const own = this.#operations.filter((one) => one.group === group)
    // What was done often is done less, so that the same few things meet all that can happen to them.
    const weights = Object.fromEntries(
      own.map((one) => {
        const done = (this.#done.get(one.id) ?? 0) * (makes(one.id) ? this.#thrift : 1)
        return [one.id, weightOf(one) / (1 + done)]
      }),
    )
    const id = dice.weighted(weights)
    const request = this.#request(own.find((one) => one.id === id)!)
    // Few ask for what is not there.
    if (!request.isSound && !dice.chance(0.04)) return this.next()
    this.#said.push(request.step)
    return request.step
  }

  /** What is asked at the end: all that the conversation was about, and some of it closely. */
  survey(): ReadonlyArray<Step> {
    const about = new Set(Object.keys(this.#theme))
    const admin = (path: string): Step => ({ as: "admin", method: "GET", path })
    const own = (path: string, body: object = {}): Step => ({
      as: "<key 1>",
      method: "POST",
      path: `/v1/${path}`,
      body,
    })
    const newest = (name: string, ask: (id: string) => Step) => (this.#known.get(name) ?? []).slice(-5).map(ask)
    const org = "/api/v0/orgs/<id 1>"
    const steps: Readonly<Record<string, ReadonlyArray<Step>>> = {
      orgs: [admin(org), admin("/api/v0/orgs")],
      keys: [
        admin(`${org}/keys?limit=100`),
        admin(`${org}/usage`),
        ...newest("keys.id", (id) => admin(`${org}/keys/${id}`)),
      ],
      roles: [admin(`${org}/roles`)],
      audit: [admin(`${org}/audit?limit=100`)],
      alerts: [admin(`${org}/alerts`)],
      serviceAlerts: [admin("/api/v0/alerts")],
      activity: [admin("/api/v0/overview"), admin("/api/v0/endpoints/failing")],
      projects: [admin("/api/v0/projects"), ...newest("projectId", (id) => admin(`/api/v0/projects/${id}`))],
      deployments: newest("projectId", (id) => admin(`/api/v0/projects/${id}/deployments`)),
      webhooks: [own("webhooks/list"), ...newest("webhook_endpoint_id", (id) => own("webhooks/get", { id }))],
      events: [own("events/list", { limit: 100 }), own("events/types")],
      deliveries: [
        own("webhooks/deliveries/list", { limit: 100 }),
        ...["resends", "causes"].map((path) => own(`webhooks/deliveries/${path}`)),
        ...newest("delivery_id", (id) => own("webhooks/deliveries/get", { delivery_id: id })),
      ],
      eventTypes: [own("event-types/list")],
      jobs: [
        own("jobs/list", { limit: 100 }),
        ...["jobs/sweeps", "jobs/causes", "jobs/queue"].map((path) => own(path)),
        ...newest("job_id", (id) => own("jobs/get", { job_id: id })),
      ],
      schedules: [own("schedules/list"), ...newest("schedule_id", (id) => own("schedules/get", { schedule_id: id }))],
      workflows: [own("workflows/list")],
      portal: [own("portal/links/list")],
    }
    return Object.entries(steps).flatMap(([group, own]) => (about.has(group) ? own : []))
  }

  #operationOf({ method, path }: Said) {
    const isOf = (one: Operation) => new RegExp(`^${one.path.replaceAll(/\{\w+\}/g, "[^/]+")}(\\?|$)`).test(path)
    return operations.find((one) => one.method === method && isOf(one))!
  }

  #request(operation: Operation): { readonly step: Said; readonly isSound: boolean } {
    const dice = this.#dice
    const { group, id, method, path } = operation
    this.#isSound = true
    const queries = operation.queries
      .filter(({ name, required }) => required === true || dice.chance(this.#shareOf(name) / 2))
      .map(({ name, schema }) => `${name}=${encodeURIComponent(String(this.#value(schema, name, group)))}`)
      .map((text) => text.replaceAll("%3C", "<").replaceAll("%3E", ">").replaceAll("%20", " "))
    // The org of most requests stays.
    const asked = (id === "orgs.remove" ? path.replace("{orgId}", "<id 3>") : path).replaceAll(
      /\{(\w+)\}/g,
      (_, name: string) => String(this.#word(name, group) ?? "none"),
    )
    const isV1 = path.startsWith("/v1/")
    const portal = this.#of("sessions.token")
    const as =
      id === "deployments.register"
        ? `run ${dice.pick(["acme1", "acme1", "acme1", "other2"])} ${dice.pick(["site1", "site1", "site2"])} ${dice.int(1, 40)}`
        : portal !== undefined && group !== "sessions" && dice.chance(0.25)
          ? `bearer ${portal}`
          : isV1
            ? dice.chance(this.#shareOfOther)
              ? "<key 2>"
              : "<key 1>"
            : "admin"
    const body = operation.body === undefined ? undefined : this.#value(operation.body, "", group)
    if (id === "jobs.createBatch")
      for (const job of (body as { jobs: Array<Record<string, unknown>> }).jobs) {
        delete job["unique"]
        delete job["debounce_seconds"]
      }
    const step = {
      as,
      method,
      path: queries.length === 0 ? asked : `${asked}?${queries.join("&")}`,
      ...(body === undefined ? {} : { body }),
      ...(operation.isKeyed && dice.chance(0.2) ? { idempotencyKey: `once-${dice.int(1, 3)}` } : {}),
    }
    return { step, isSound: this.#isSound }
  }

  /** Something that was answered before by this name; the newer, the likelier. */
  #of(name: string) {
    const values = this.#known.get(name) ?? []
    return values.length === 0
      ? undefined
      : values[values.length - 1 - Math.floor(this.#dice.next() ** 2 * values.length)]
  }

  /** As `#of`, for what a request is about. */
  #thing(name: string) {
    const found = this.#of(name)
    this.#isSound &&= found !== undefined
    return found ?? "none"
  }

  /** What a member or a parameter of this name is in conversations; `undefined`: anything that its schema allows. */
  #word(name: string, group: string): unknown {
    const dice = this.#dice
    const few = (...words: ReadonlyArray<unknown>) => dice.pick(words)
    const later = (...seconds: ReadonlyArray<number>) => `<in ${dice.pick(seconds)}>`
    switch (name) {
      case "orgId":
        return dice.chance(this.#shareOfOther) ? "<id 3>" : "<id 1>"
      case "projectId":
        return this.#thing(name)
      case "id":
      case "webhook_endpoint_id":
      case "deploymentId":
      case "project_id":
      case "job_id":
      case "event_id":
      case "delivery_id":
      case "schedule_id":
      case "sweep_id":
      case "resend_id":
      case "link_id":
        return this.#thing(name === "id" ? (nouns[group] ?? `${group}.id`) : name)
      case "key":
        return group === "keys" ? (this.#of("key") ?? "<key 1>") : few("one", "two")
      case "webhook_endpoint_ids":
        return [this.#of("webhook_endpoint_id")].filter((one) => one !== undefined)
      case "source":
      case "environment":
      case "deployment_id":
      case "externalId":
      case "external_id":
      case "concurrency_key":
      case "idempotency_key":
      case "group":
        return few("one", "two")
      case "name":
        if (group === "eventTypes") return few("invoice.paid", "user.created", "user.gone", "invoice.sent")
        return group === "roles" ? few("reader", "writer") : few("alpha", "beta", "gamma")
      case "example":
        return { amount: 5 }
      case "permission":
        return few("files.read", "models.use")
      case "encoding":
        return "hex"
      case "workflow":
        return few("mail", "mail", "report")
      case "workflows":
        return few(["mail"], ["mail", "report"])
      case "type":
      case "event_type":
        return few("invoice.paid", "invoice.paid", "user.created")
      case "event_types":
        return few(["invoice.paid"], ["invoice.*"], ["user.created", "job.*"], ["*"])
      case "channels":
        return few(["red"], ["blue"], ["red", "blue"])
      case "roles":
        return few(["reader"], ["writer", "reader"])
      case "permissions":
        return few(["files.read"], ["files.*"], ["files.write", "models.use"], ["*"])
      case "url":
      case "callback_url":
        return `${dice.pick(receivers)}/${dice.int(1, 3)}`
      case "target":
        return "webhook"
      case "callback_secret":
        return "secret of a callback"
      case "token":
        return this.#thing("portal")
      case "run_at":
      case "expiresAt":
        return later(20, 100, 600, 5_000, 100_000)
      case "since":
      case "from":
        return later(-100_000, -4_000, -300, -20)
      case "until":
      case "to":
        return later(-300, -20, 0, 100)
      case "cron":
        return few("* * * * *", "*/5 * * * *", "0 3 * * 1", "30 2 31 3 *")
      case "timezone":
        return few("Europe/Berlin", "UTC", "America/New_York")
      case "every":
        return group === "schedules" ? undefined : few("hour", "day")
      case "hash":
        return dice.pick(["a", "b", "c"]).repeat(64)
      case "algorithm":
        return "sha256"
      case "keyPrefix":
        return few("acme", "beta")
      case "metadata":
        return { tier: few("free", "paid") }
      case "owners":
        return few(["acme1"], ["acme1", "other2"], [])
      case "hostOwner":
        return few("acme1", "other2")
      case "hostRepo":
        return few("site1", "site2")
      case "provider":
        return "github"
      case "allowedIps":
        return few(["203.0.113.0/24"], ["198.51.100.7"])
      case "clientIp":
        return few("203.0.113.7", "198.51.100.7:99")
      case "attempt":
        return few(1, 1, 1, 2)
      case "limit":
        return few(1, 2, 3, 5, 100)
      case "priority":
        return few(-1, 0, 5)
      case "max_attempts":
      case "attempts":
        return few(1, 2, 3)
      case "concurrency":
      case "concurrency_per_key":
      case "max":
      case "max_keys":
        return few(1, 1, 2, 3)
      case "threshold":
        return few(1, 5, 50)
      case "unfinishedJobs":
      case "pendingDeliveries":
      case "endpoints":
      case "schedules":
      case "projects":
      case "keys":
        return group === "orgs" ? few(null, 3, 6) : undefined
      case "storedBytes":
        return few(null, 10_000_000)
      case "retentionDays":
        return few(null, 1)
      case "cost":
      case "amount":
      case "add":
      case "remaining":
        return few(0, 1, 2, 5, 150)
      case "window":
        return few(1, 10, 60)
      case "lease_seconds":
        return few(5, 30, 300)
      case "wait_seconds":
        return few(0, 0, 2)
      case "overlapSeconds":
        return few(0, 30, 600)
      case "debounce_seconds":
      case "retry_delay_seconds":
      case "base_seconds":
      case "window_seconds":
      case "within_seconds":
      case "expires_in_seconds":
      case "expiresInSeconds":
      case "max_seconds":
        return few(1, 30, 90, 600)
      case "max_per_second":
        return few(null, 1, 50)
      case "retry_delays":
      case "delays":
        return few([1, 5], [3], [30, 60, 90])
      case "signing_secret":
        return "whsec_c2VjcmV0IG9mIHRoZSBzaW11bGF0aW9u"
      case "data":
      case "input":
      case "result":
        return few(1, { amount: 5, tier: "free" }, { amount: 50, note: "a" }, null)
      case "schemas":
        return { 1: few({ type: "object", required: ["amount"] }, { type: "number" }, {}) }
      case "filter":
        return group === "webhooks" ? few({ "data.tier": "free" }, { "data.amount": 5 }, null) : undefined
      case "header_names":
        return few("svix", null)
      case "docsUrl":
        return few("https://docs.example", null)
      case "subdomain":
        return few("acme", "beta", null)
      case "text":
        return few("alpha", "https", "invoice")
      case "cursor":
        return this.#thing("next_cursor")
      case "headers":
        return { "x-tenant": "acme" }
      case "auth":
        return null
      case "scope":
      case "client_id":
      case "client_secret":
      case "private_key":
      case "certificate":
        return "text"
      default:
        return undefined
    }
  }

  /** A value that a schema allows, as far as words and ranges say it. */
  #value(schema: Schema, name: string, group: string): unknown {
    const dice = this.#dice
    const word = name === "" ? undefined : this.#word(name, group)
    if (word !== undefined) return word
    if (schema.$ref !== undefined)
      return this.#value(document.components.schemas[schema.$ref.split("/").at(-1)!]!, name, group)
    if (schema.const !== undefined) return schema.const
    if (schema.enum !== undefined) return dice.pick(schema.enum)
    const choices = schema.anyOf ?? schema.oneOf
    if (choices !== undefined) return this.#value(dice.pick(choices), name, group)
    if (schema.allOf !== undefined)
      return this.#value(Object.assign({}, ...(schema.allOf as ReadonlyArray<object>)) as Schema, name, group)
    const type = typeof schema.type === "string" ? schema.type : dice.pick(schema.type ?? ["number"])
    switch (type) {
      case "object":
        return this.#object(schema, group)
      case "array": {
        const { items = {}, maxItems = 3, minItems = 0 } = schema
        const length = Math.min(maxItems, Math.max(minItems, dice.int(1, 3)))
        return Array.from({ length }, () => this.#value(items, "", group))
      }
      case "integer":
      case "number": {
        const { maximum = 100, minimum = 0 } = schema
        return dice.pick([minimum, minimum + 1, Math.min(maximum, minimum + 10), Math.min(maximum, 1_000)])
      }
      case "boolean":
        return dice.chance(0.5)
      case "null":
        return null
      default:
        return schema.examples === undefined ? dice.pick(["a", "b"]) : dice.pick(schema.examples)
    }
  }

  /** How often an optional member is used: much, or hardly ever, in all of a conversation. */
  #shareOf(name: string) {
    const known = this.#shares.get(name) ?? (this.#dice.chance(this.#shareOfMembers) ? 0.6 : 0.05)
    this.#shares.set(name, known)
    return known
  }

  /** The members in play, the required ones, and at least one. */
  #object({ properties = {}, required = [] }: Schema, group: string) {
    const dice = this.#dice
    const names = Object.keys(properties)
    const chosen = new Set(names.filter((name) => required.includes(name) || dice.chance(this.#shareOf(name))))
    if (chosen.size === 0 && names.length > 0) chosen.add(dice.pick(names))
    for (const [name, other] of Object.entries(together))
      if (chosen.has(name) && names.includes(other)) chosen.add(other)
    for (const all of [...oneOf, ...atMostOneOf]) {
      if (!all.every((name) => names.includes(name))) continue
      const isAsked = oneOf.includes(all) || all.some((name) => chosen.has(name))
      const kept = all.find((name) => required.includes(name)) ?? dice.pick(all)
      for (const name of all) chosen.delete(name)
      if (isAsked) chosen.add(kept)
    }
    if (names.includes("webhook_endpoint_id")) chosen.delete("external_id")
    return Object.fromEntries(
      names.filter((name) => chosen.has(name)).map((name) => [name, this.#value(properties[name]!, name, group)]),
    )
  }
}

/** How many requests and waits a new conversation has, before it looks at all that there is. */
const length = 120

/** Makes up a conversation about a theme, and holds it. Returns its steps, and its lines. */
export const invent = async (theme: Theme, seed: number) => {
  const speaker = new Speaker(new Dice(seed), theme)
  const said: Array<Step> = []
  let survey: Array<Step> | undefined
  const next = () => {
    const step = said.length < length ? speaker.next() : (survey ??= [...speaker.survey()]).shift()
    if (step !== undefined) said.push(step)
    return step
  }
  const lines = await converse(next, (step, answer) => speaker.hear(step, answer))
  return { said, lines }
}
