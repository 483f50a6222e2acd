import { Duration, Effect, Layer } from "effect"
import { generateKeyPairSync, sign } from "node:crypto"
import { HttpClient, type HttpClientRequest, HttpClientResponse } from "effect/http"
import { SafeHttp, type SafeResponse, SafeHttpError, type SafeRequest } from "#src/infrastructure/net/SafeHttp.ts"
import type { Received } from "./history.ts"
import type { Actor, Dice, World } from "./world.ts"

/** Where clients find the service. */
export const baseUrl = "https://gatehouse.example"

/** How a receiver behaves for a while. */
export type Manner = "well" | "slow" | "hangs" | "fails" | "busy" | "lies" | "loses" | "gone"

/** The receivers of webhooks and callbacks, which remember what they got. */
export class Receivers {
  readonly world: World
  readonly received: Array<Received> = []
  /** What is fetched from some of them. */
  readonly documents = new Map<string, string>()
  /** How often a receiver fails that behaves well. */
  failing = 0.03
  /** Who waits for an answer: once for each request. */
  readonly #waiting = new Set<{ readonly actor: Actor }>()
  readonly #dice: Dice
  readonly #manners = new Map<string, Manner>()

  constructor(world: World) {
    this.world = world
    this.#dice = world.dice.fork()
  }

  /** Sets how the receiver at a URL behaves from now on. */
  behave(url: string, manner: Manner) {
    this.#manners.set(url, manner)
  }
  mannerOf(url: string): Manner {
    return this.#manners.get(url) ?? "well"
  }
  /** From now on all receivers behave well, but those that are gone. */
  calmDown() {
    this.failing = Math.min(this.failing, 0.03)
    for (const [url, manner] of this.#manners) if (manner !== "gone") this.#manners.delete(url)
  }

  /** Whether no replica waits for an answer. */
  get isQuiet() {
    return ![...this.#waiting].some(({ actor }) => actor.state !== "dead")
  }

  /** The time until the receiver has the request, and until its answer is back; and the answer. */
  #plan(manner: Manner, document: string | undefined) {
    const dice = this.#dice
    const answer = (status: number, headers: Readonly<Record<string, string>> = {}, body = "") => ({
      status,
      headers,
      body,
    })
    const quick = dice.int(1, 40)
    // Every receiver fails now and then.
    if (manner === "fails" || (manner === "well" && dice.chance(this.failing))) {
      return { there: quick, back: quick, answer: answer(dice.pick([500, 502, 503, 404])) }
    }
    const status = document === undefined && manner === "well" ? dice.pick([200, 202, 204]) : 200
    if (manner === "well") return { there: quick, back: quick, answer: answer(status, {}, document) }
    if (manner === "slow") return { there: quick, back: dice.int(500, 14_000), answer: answer(200, {}, document) }
    if (manner === "busy") {
      return { there: quick, back: quick, answer: answer(429, { "retry-after": String(dice.int(1, 90)) }) }
    }
    if (manner === "lies") {
      // It has the event, and says that it has not.
      return { there: quick, back: quick, answer: answer(500, {}, "nothing has arrived here") }
    }
    if (manner === "gone") return { there: quick, back: quick, answer: answer(410) }
    // It has the event, and its answer never arrives.
    return { there: quick, back: Infinity, answer: answer(200) }
  }

  request(actor: Actor, request: SafeRequest): Effect.Effect<SafeResponse, SafeHttpError> {
    return Effect.callback((resume) => {
      const manner = this.mannerOf(request.url)
      const { there, back, answer } = this.#plan(manner, this.documents.get(request.url))
      const timeout = Duration.toMillis(Duration.fromInputUnsafe(request.timeout))
      const isAnswered = there + back < timeout
      const waiting = { actor }
      this.#waiting.add(waiting)
      const fail = (kind: "timeout", message: string) => {
        this.#waiting.delete(waiting)
        resume(Effect.fail(new SafeHttpError({ kind, message, partial: undefined })))
      }
      const undo = [
        // What is on its way arrives, even if the sender dies now.
        this.world.after(there, () => this.#receive(actor, request, manner, isAnswered ? answer.status : undefined)),
        actor.after(timeout, () => fail("timeout", "No complete answer in time.")),
      ]
      if (isAnswered) {
        undo.push(
          actor.after(there + back, () => {
            undo[1]!()
            this.#waiting.delete(waiting)
            const body = Buffer.from(answer.body)
            resume(Effect.succeed({ ...answer, body, bytesRead: body.length, truncated: false }))
          }),
        )
      }
      return Effect.sync(() => {
        this.#waiting.delete(waiting)
        undo.slice(1).forEach((cancel) => cancel())
      })
    })
  }

  #receive(actor: Actor, { body, headers = {}, url }: SafeRequest, manner: Manner, status: number | undefined) {
    const text = typeof body === "string" ? body : Buffer.from(body ?? []).toString()
    const id = headers["webhook-id"] ?? headers["svix-id"]
    this.received.push({ at: this.world.now, from: actor.name, url, id, headers, body: text, manner, status })
    const kind = id ?? text.slice(0, 60)
    this.world.note(url, `receives ${kind} from ${actor.name}, answers ${status ?? "nothing"}`)
  }

  /** `SafeHttp` for a replica. */
  layer(actor: Actor): Layer.Layer<SafeHttp> {
    return Layer.succeed(
      SafeHttp,
      SafeHttp.of({ hostFault: () => Effect.succeed(null), request: (request) => this.request(actor, request) }),
    )
  }
}

const issuer = "https://token.actions.githubusercontent.com"
const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
const jwk = { ...publicKey.export({ format: "jwk" }), kid: "simulated", use: "sig", alg: "RS256" }

/** A run of CI that pushes to the branch main. */
export interface CiRun {
  readonly owner: string
  readonly name: string
  readonly runId: number
}

/** The company's identity provider, at which people sign in. */
export const provider = "https://login.example"
/** How the service is known there. */
export const clientId = "gatehouse"
/** Two orgs that are there before a world begins. */
export const orgsOfPeople = ["01KAHBMKZ3D2X7S5QN8W4V6R9T", "01KAHBMKZ3D2X7S5QN8W4V6R9V"] as const
/** What the groups of people may do: in one org, or in all. */
export const groups = {
  watchers: { role: "viewer", orgId: null },
  owners: { role: "owner", orgId: orgsOfPeople[0] },
  readers: { role: "viewer", orgId: orgsOfPeople[1] },
} as const
export type Group = keyof typeof groups
const settingsOfProvider = {
  issuer: provider,
  jwks_uri: `${provider}/jwks`,
  authorization_endpoint: `${provider}/authorize`,
  token_endpoint: `${provider}/token`,
}

/** The claims of an id token as the code that is exchanged for it: this provider remembers nothing. */
export const codeOf = (claims: object) => Buffer.from(JSON.stringify(claims)).toString("base64url")

/** The answer of the token endpoint. */
const exchanged = ({ body }: HttpClientRequest.HttpClientRequest) => {
  const form = new URLSearchParams(body._tag === "Uint8Array" ? new TextDecoder().decode(body.body) : "")
  const claims = JSON.parse(Buffer.from(form.get("code")!, "base64url").toString()) as object
  return JSON.stringify({ id_token: signed({ iss: provider, aud: clientId, ...claims }) })
}

const signed = (claims: object) => {
  const encode = (part: object) => Buffer.from(JSON.stringify(part)).toString("base64url")
  const input = `${encode({ alg: "RS256", kid: jwk.kid })}.${encode(claims)}`
  return `${input}.${sign("sha256", Buffer.from(input), privateKey).toString("base64url")}`
}

const digitsOf = (name: string) => name.replace(/\D/g, "")

/** The issuer of CI tokens, and the company's identity provider. */
export class Issuers {
  readonly documents = new Map([
    [`${issuer}/.well-known/jwks`, JSON.stringify({ keys: [jwk] })],
    [settingsOfProvider.jwks_uri, JSON.stringify({ keys: [jwk] })],
    [`${provider}/.well-known/openid-configuration`, JSON.stringify(settingsOfProvider)],
  ])
  isDown = false

  /** The token of a run, which is valid for an hour. */
  token({ name, owner, runId }: CiRun, nowMillis: number) {
    const now = Math.floor(nowMillis / 1000)
    const claims = {
      iss: issuer,
      aud: baseUrl,
      iat: now - 120,
      nbf: now - 120,
      exp: now + 3600,
      repository: `${owner}/${name}`,
      repository_owner: owner,
      repository_id: digitsOf(name),
      repository_owner_id: digitsOf(owner),
      ref: "refs/heads/main",
      ref_type: "branch",
      sha: "714a629c0b401fdce83e847fc9589983fc6f46bc",
      run_id: String(runId),
      run_attempt: "1",
      event_name: "push",
      workflow: "deploy",
      actor: owner,
    }
    return signed(claims)
  }

  /** The provider signs out a person, by `sub`, or a session of theirs, by `sid`. */
  logoutToken(whom: { readonly sub: string } | { readonly sid: string }, nowMillis: number) {
    const iat = Math.floor(nowMillis / 1000)
    const events = { "http://schemas.openid.net/event/backchannel-logout": {} }
    return signed({ iss: provider, aud: clientId, iat, exp: iat + 120, jti: `logout ${nowMillis}`, events, ...whom })
  }

  layer(actor: Actor): Layer.Layer<HttpClient.HttpClient> {
    return Layer.succeed(
      HttpClient.HttpClient,
      HttpClient.make((request, url) =>
        Effect.callback((resume) => {
          const isExchange = url.href === settingsOfProvider.token_endpoint
          const found = isExchange ? exchanged(request) : this.documents.get(url.href)
          const document = this.isDown ? undefined : found
          const cancel = actor.after(actor.dice.int(1, 60), () =>
            resume(
              Effect.succeed(
                HttpClientResponse.fromWeb(
                  request,
                  new Response(document ?? "down", { status: document === undefined ? 503 : 200 }),
                ),
              ),
            ),
          )
          return Effect.sync(cancel)
        }),
      ),
    )
  }
}
