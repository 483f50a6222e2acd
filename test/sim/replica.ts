import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Cause, ConfigProvider, Effect, Exit, Layer, Logger, Metric, References, Scope } from "effect"
import { SecureRandom } from "effect/crypto"
import { type HttpMiddleware, HttpServer, type HttpServerRequest } from "effect/http"
import { hash } from "node:crypto"
import { IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"
import { app } from "#src/boot/app.ts"
import * as Config from "#src/boot/config.ts"
import { asRouted } from "#src/http/proxyAuthorization.ts"
import * as HotPath from "#src/http/server/hotPath.ts"
import { Known } from "#src/infrastructure/database/Migrations.ts"
import { Admission, makeAdmission } from "#src/infrastructure/database/orUnavailable.ts"
import { OpenSocket } from "#src/infrastructure/database/PostgresDatabase.ts"
import { ZipReader } from "#src/infrastructure/docs/ZipReader.ts"
import { DeletedOrgs, makeDeletedOrgs } from "#src/infrastructure/orgs/DeletedOrgs.ts"
import { goodLink, type Link, type SimulatedDatabase } from "./database.ts"
import type { Body } from "./history.ts"
import { baseUrl, clientId, groups, type Issuers, provider, type Receivers } from "./network.ts"
import { Actor, type ClockError, type World } from "./world.ts"

/** The administrator's token of every simulated service. */
export const adminToken = "administrator-of-the-simulation-0123456789"

const environment = {
  ADMIN_TOKEN: adminToken,
  BASE_URL: baseUrl,
  DATABASE_URL: "postgres://postgres@database.example/gatehouse?sslmode=disable",
  ENCRYPTION_KEY: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
  ALLOW_PRIVATE_NETWORKS: "true",
  OIDC_ALLOWED_OWNERS: "acme",
  CONSOLE_OIDC_ISSUER: provider,
  CONSOLE_OIDC_CLIENT_ID: clientId,
  CONSOLE_OIDC_CLIENT_SECRET: "secret of the client",
  CONSOLE_OIDC_ROLES: JSON.stringify({
    groups: Object.fromEntries(
      Object.entries(groups).map(([name, { orgId, role }]) => [name, orgId === null ? role : `${role}:${orgId}`]),
    ),
  }),
  // So that a run sees the end of them.
  WEBHOOK_RETRY_DELAYS: "2s,5s,10s,20s,40s,60s,90s,120s",
  AUDIT_RETENTION_DAYS: "1",
}

const load = (retentionDays: number) =>
  Effect.runSync(
    Config.load.pipe(
      Effect.provide(
        ConfigProvider.layer(ConfigProvider.fromEnvRecord({ ...environment, RETENTION_DAYS: `${retentionDays}` })),
      ),
    ),
  )
/** The settings of replicas, by how many days they keep records. */
const settings = { 1: load(1), 2: load(2) }

/** Zips are their pages in JSON: a thread unpacks real ones, which ends at a moment of real time. */
const zips = Layer.succeed(
  ZipReader,
  ZipReader.of({
    read: (bytes) =>
      Effect.sync(() => ({ version: hash("sha256", bytes), pages: JSON.parse(Buffer.from(bytes).toString()) })),
  }),
)

/** The migrations, loaded before the world begins: it has no files. */
const migrations = await Effect.runPromise(
  Effect.flatMap(Effect.flatten(Known), (known) =>
    Effect.forEach(known, (migration) =>
      Effect.map(migration.load, (loaded) => ({ ...migration, load: Effect.succeed(loaded) })),
    ),
  ),
)

/** What a client sends. */
export interface Call {
  readonly method: string
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: unknown
}

/** What a client gets; no status if the connection broke before. */
export interface Answer {
  readonly status: number | undefined
  readonly body: Body
  /** The session that the response starts. */
  readonly cookie?: string | undefined
}

export const noAnswer: Answer = { status: undefined, body: undefined as unknown as Body }

type Handle = (request: IncomingMessage, response: ServerResponse) => void

/** The surroundings of all replicas. */
export interface Surroundings {
  readonly world: World
  readonly database: SimulatedDatabase
  readonly receivers: Receivers
  readonly issuers: Issuers
  /** How long each way to the database takes at most, in milliseconds, while nothing is wrong. */
  readonly linkMillis: number
  readonly retentionDays: 1 | 2
}

/** One process of the service: the production layers over a simulated network, database, clock and chance. */
export class Replica {
  readonly name: string
  readonly link: Link
  readonly clock: ClockError
  readonly #around: Surroundings
  #actor: Actor | undefined
  #handle: Handle | undefined
  #lives = 0
  readonly #unanswered = new Set<() => void>()

  constructor(around: Surroundings, name: string, clock: ClockError) {
    this.#around = around
    this.name = name
    this.clock = clock
    this.link = goodLink(around.linkMillis)
  }

  /** Nothing is wrong with its connections any more. */
  restoreNetwork() {
    Object.assign(this.link, goodLink(this.#around.linkMillis))
  }

  get isUp() {
    return this.#handle !== undefined && this.#actor?.state === "running"
  }
  get state() {
    return this.#actor?.state ?? "dead"
  }

  /** Starts a process. It answers requests as soon as all its layers are built. */
  start() {
    const { database, issuers, receivers, retentionDays, world } = this.#around
    const life = ++this.#lives
    const actor = new Actor(world, this.name, this.clock)
    this.#actor = actor
    world.note(this.name, "starts")
    const parts = {
      listener: this.#listener(actor),
      receivers: receivers.layer(actor),
      issuers: issuers.layer(actor),
      random: Layer.succeed(
        SecureRandom.SecureRandom,
        SecureRandom.make((size) => actor.dice.randomize(new Uint8Array(size))),
      ),
      zips,
    }
    const observed = Layer.mergeAll(
      Logger.layer([Logger.make(({ cause, logLevel, message }) => this.#log(logLevel, message, cause))]),
      Layer.succeed(References.MinimumLogLevel, "Warn"),
      Layer.succeed(Metric.MetricRegistry, new Map()),
      Layer.succeed(Admission, makeAdmission()),
      Layer.succeed(DeletedOrgs, makeDeletedOrgs()),
      Layer.succeed(Known, Effect.succeed(migrations)),
      Layer.succeed(OpenSocket, () => database.connect(actor, this.link)),
    )
    const run = Effect.gen(function* () {
      const scope = yield* Scope.make()
      return yield* Layer.buildWithMemoMap(
        Layer.provide(app(settings[retentionDays], parts), observed),
        yield* Layer.makeMemoMap,
        scope,
      )
    })
    actor.enqueue(() => {
      Effect.runForkWith(actor.services)(run).addObserver((exit) => {
        if (Exit.isSuccess(exit)) return world.note(this.name, "answers requests")
        world.note(this.name, `cannot start: ${Cause.pretty(exit.cause).split("\n", 1)[0]}`)
        // As its supervisor would do.
        if (this.#lives !== life) return
        this.crash()
        world.after(1_000, () => this.#lives === life && this.start())
      })
    })
  }

  #log(level: string, message: unknown, cause: Cause.Cause<unknown>) {
    const text = [message].flat().map(String).join(" ")
    const why = cause.reasons.length === 0 ? "" : ` (${Cause.pretty(cause).split("\n", 1)[0]})`
    this.#around.world.note(this.name, `logs ${level.toUpperCase()} ${text}${why}`)
  }

  /** The process dies at once. The kernel closes its sockets. */
  crash() {
    const { database, world } = this.#around
    const actor = this.#actor
    if (actor === undefined) return
    world.note(this.name, "crashes")
    actor.kill()
    this.#actor = undefined
    this.#handle = undefined
    database.hangUpAll(actor)
    for (const lose of [...this.#unanswered]) lose()
  }

  /** The process stands still, as when its machine swaps or is migrated. */
  pause() {
    if (this.#actor?.state !== "running") return
    this.#actor.state = "paused"
  }
  resume() {
    if (this.#actor?.state !== "paused") return
    this.#actor.state = "running"
  }

  /** Breaks connections to the database. */
  cut(share: number) {
    if (this.#actor !== undefined) this.#around.database.cutAll(this.#actor, share)
  }

  /** Sends a request from a client and returns its answer, if one comes before the process dies. */
  call(client: Actor, { body, headers, method, path }: Call): Effect.Effect<Answer> {
    return Effect.callback((resume) => {
      const { world } = this.#around
      let isOver = false
      const end = (answer: Answer) => {
        if (isOver) return
        isOver = true
        this.#unanswered.delete(lose)
        world.after(client.dice.next() * 2, () => client.enqueue(() => resume(Effect.succeed(answer))))
      }
      const lose = () => end(noAnswer)
      this.#unanswered.add(lose)
      const actor = this.#actor
      if (actor === undefined) return lose()
      let response: MemoryResponse | undefined
      const handle = () => {
        if (this.#handle === undefined) return lose()
        const text = typeof body === "string" ? body : JSON.stringify(body)
        const bytes = body === undefined ? undefined : Buffer.from(text)
        const request = requestOf(method, path, headers, bytes)
        response = new MemoryResponse(request, (status, text, cookie) => end({ status, body: parsed(text), cookie }))
        this.#handle(request, response)
      }
      world.after(client.dice.next() * 2, () => {
        if (actor.state === "paused" && client.dice.chance(0.5)) actor.enqueueFirst(handle)
        else actor.enqueue(handle)
      })
      return Effect.sync(() => {
        isOver = true
        this.#unanswered.delete(lose)
        actor.enqueue(() => response?.hangUp())
      })
    })
  }

  #listener(actor: Actor) {
    return Layer.unwrap(
      Effect.map(HotPath.make, (hot) =>
        Layer.succeed(
          HttpServer.HttpServer,
          HttpServer.make({
            address: { _tag: "InetAddress", address: "127.0.0.1", port: 3000 } as never,
            serve: Effect.fnUntraced({ self: this }, function* (application, middleware) {
              const applied = middleware as HttpMiddleware.HttpMiddleware.Applied<
                typeof application,
                unknown,
                HttpServerRequest.HttpServerRequest | Scope.Scope
              >
              const handle = yield* NodeHttpServer.makeHandler(application, {
                middleware: applied,
                scope: Scope.forkUnsafe(yield* Effect.scope, "parallel"),
              })
              if (actor.state === "dead") return
              this.#handle = (request, response) =>
                hot(request, response, () => {
                  asRouted(request)
                  handle(request, response)
                })
            }),
          }),
        ),
      ),
    ).pipe(Layer.merge(NodeHttpServer.layerHttpServices))
  }
}

const parsed = (text: string): Body => {
  try {
    return JSON.parse(text)
  } catch {
    return { message: text } as Body
  }
}

/** A request that was read from no socket. */
const requestOf = (
  method: string,
  path: string,
  headers: Readonly<Record<string, string>>,
  body: Buffer | undefined,
): IncomingMessage => {
  const request = new IncomingMessage(new Socket())
  const all: Record<string, string> = { host: "gatehouse.example", ...headers }
  if (body !== undefined) {
    all["content-type"] = "application/json"
    all["content-length"] = String(body.length)
  }
  Object.assign(request, { method, url: path, httpVersion: "1.1", httpVersionMajor: 1, httpVersionMinor: 1 })
  request.headers = all
  request.rawHeaders = Object.entries(all).flat()
  if (body !== undefined) request.push(body)
  request.push(null)
  request.complete = true
  return request
}

/** A response that is written to memory. */
class MemoryResponse extends ServerResponse {
  readonly #done: (status: number, text: string, cookie: string | undefined) => void
  #cookie: string | undefined
  /** An authorization of a proxy, and a redirect, have headers and no body: they count as its body. */
  #told: string | undefined
  readonly #parts: Array<Buffer> = []
  #isOver = false
  constructor(request: IncomingMessage, done: (status: number, text: string, cookie: string | undefined) => void) {
    super(request)
    this.#done = done
  }
  override writeHead(status: number, ...rest: ReadonlyArray<unknown>): this {
    this.statusCode = status
    const headers = rest.find((one) => typeof one === "object") as Readonly<Record<string, unknown>> | undefined
    const cookie = headers?.["set-cookie"] ?? this.getHeader("set-cookie")
    if (cookie !== undefined) this.#cookie = String(cookie).split(";", 1)[0]
    const keyId = headers?.["x-gatehouse-key"] ?? this.getHeader("x-gatehouse-key")
    const orgId = headers?.["x-gatehouse-org"] ?? this.getHeader("x-gatehouse-org")
    if (keyId !== undefined) this.#told = JSON.stringify({ keyId, orgId })
    const url = headers?.["location"] ?? this.getHeader("location")
    if (url !== undefined) this.#told = JSON.stringify({ url })
    return this
  }
  override write(part: string | Uint8Array): boolean {
    this.#parts.push(Buffer.from(part as Uint8Array))
    return true
  }
  override end(part?: unknown): this {
    if (this.#isOver) return this
    if (typeof part === "string" || part instanceof Uint8Array) this.write(part)
    this.#isOver = true
    this.finished = true
    this.emit("finish")
    this.emit("close")
    this.#done(this.statusCode, this.#told ?? Buffer.concat(this.#parts).toString(), this.#cookie)
    return this
  }
  /** The client goes away. */
  hangUp() {
    if (!this.#isOver) this.emit("close")
  }
}
