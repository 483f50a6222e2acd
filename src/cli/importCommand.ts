import { Console, Effect, Exit, Option, Redacted, Result, Schedule, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { HttpClient, HttpClientError, HttpClientRequest } from "effect/http"
import { transportFault } from "../infrastructure/net/transportFault.ts"
import { refusalOf, withoutRedirects } from "../sdk/withoutRedirects.ts"
import { counted } from "../domain/plural.ts"
import { fit, shapeOf } from "../domain/jsonShape.ts"
import { cut, Metadata, Name } from "../domain/Schemas.ts"
import { Channels, EventPatterns, isReserved } from "../domain/webhooks/EventPatterns.ts"
import { EventFilter } from "../domain/webhooks/EventFilter.ts"
import { isObject } from "../domain/webhooks/jsonSchema.ts"
import { urlFault } from "../domain/callableUrls.ts"
import { CreateWebhookEndpoint, EndpointHeaders } from "../domain/webhooks/WebhookEndpoint.ts"
import { allPages, ask, faultsOf } from "./callOperation.ts"
import { checkAddress } from "./connection.ts"
import { ActFor, JsonText, group, switchFlag, textFlag } from "./flags.ts"
import { CommandFailed, failure, plain, print, table, usage } from "./output.ts"
import { readSecret } from "./secretInput.ts"

/** An endpoint of another service, to be created with the fields of `webhooks/create`. */
interface Found {
  /** Whose it is: an application, an owner or a tenant; `key` is what the other service itself knows it by. */
  readonly owner: { readonly id: string; readonly name: string; readonly key: string }
  /** What the other service itself knows the endpoint by. */
  readonly key: string
  readonly endpoint: Readonly<Record<string, unknown>> & {
    readonly external_id: string
    readonly url: string
    readonly channels?: ReadonlyArray<string> | null
    readonly event_types?: ReadonlyArray<string> | null
    readonly metadata?: Readonly<Record<string, unknown>>
  }
  /** What has no counterpart here. */
  readonly lost: ReadonlyArray<string>
  /** Headers whose values the other service does not show: somebody may set them here. */
  readonly hidden?: ReadonlyArray<string>
  /** Why the endpoint cannot be imported. */
  readonly refusal?: string | undefined
}

/** Gets a path of the other service as JSON; `absent` where it has no such path. */
type Get = <S extends Schema.ConstraintDecoder<unknown>>(
  path: string,
  schema: S,
  absent?: S["Type"],
) => Effect.Effect<S["Type"], CommandFailed, HttpClient.HttpClient>

/** Reads all endpoints of another service. `project` is what `--project` says. */
type Read = (get: Get, project: string) => Effect.Effect<ReadonlyArray<Found>, CommandFailed, HttpClient.HttpClient>

const maybe = <S extends Schema.Constraint>(schema: S) => Schema.optional(Schema.NullOr(schema))
const OptionalText = maybe(Schema.String)
const OptionalInt = maybe(Schema.Int)
const Texts = Schema.Record(Schema.String, Schema.String)
const Anything = Schema.Record(Schema.String, Schema.Unknown)

const after = (name: string, cursor: string) => (cursor === "" ? "" : `&${name}=${encodeURIComponent(cursor)}`)

/**
 * An endpoint as another service knows it. Empty or null: it has none, and so has the endpoint here. Absent: the other
 * service does not know such a setting, and a repeat leaves it alone.
 */
interface Known extends Pick<Found, "owner" | "refusal" | "hidden"> {
  readonly id: string
  /** What the other service itself knows it by, if that is not `id`. */
  readonly key?: string
  readonly url: string
  readonly description?: string | null | undefined
  readonly active: boolean
  readonly secret?: string | null | undefined
  readonly types?: ReadonlyArray<string> | null | undefined
  readonly headers?: Readonly<Record<string, string>>
  /** So many requests in so many seconds. */
  readonly limit?: { readonly count: number | null | undefined; readonly seconds?: number }
  /** Further fields of `webhooks/create`. */
  readonly more?: {
    readonly channels?: ReadonlyArray<string> | null
    readonly header_names?: "svix"
    readonly filter?: object | null
    readonly auth?: object | null
    readonly metadata?: Readonly<Record<string, unknown>>
  }
  readonly lost: ReadonlyArray<string>
}

/** The endpoint with those of its settings that can exist here, and the names of the others. */
const found = ({ headers, id, key = id, limit, more, owner, refusal, secret, types, ...known }: Known): Found => {
  const lost: Array<string> = []
  const kept = <A>(what: string, all: ReadonlyArray<A>, isKnown: (one: A) => boolean, name: (one: A) => string) => {
    const others = all.filter((one) => !isKnown(one))
    if (others.length > 0) lost.push(`${what}: ${others.map(name).join(", ")}`)
    return all.filter(isKnown)
  }
  const isAny = !types?.length || types.includes("*")
  // There they are types of the user's own, which cannot be published here.
  const own = isAny ? [] : kept("event types of the service's own", types, (type) => !isReserved(type), String)
  const patterns = kept("event types", own, (type) => Schema.is(EventPatterns)([type]), String)
  const sent = kept(
    "headers",
    Object.entries(headers ?? {}),
    (one) => Schema.is(EndpointHeaders)(Object.fromEntries([one])),
    ([name]) => name,
  )
  const { count, seconds = 1 } = limit ?? {}
  const exact = count == null || count <= 0 ? Infinity : count / seconds
  const perSecond = Math.min(1000, Math.max(1, Math.floor(exact)))
  if (exact !== Infinity && exact !== perSecond)
    lost.push(`the limit of ${count} in ${seconds} s is ${perSecond} a second here`)
  return {
    owner,
    key,
    refusal,
    hidden: known.hidden ?? [],
    endpoint: {
      external_id: id,
      url: known.url,
      active: known.active,
      ...more,
      ...(known.description === undefined ? {} : { description: known.description }),
      ...(secret ? { signing_secret: secret } : { generate_signing_secret: true }),
      ...(types === undefined ? {} : { event_types: isAny ? null : patterns }),
      ...(headers === undefined ? {} : { headers: sent.length === 0 ? null : Object.fromEntries(sent) }),
      ...(limit === undefined ? {} : { max_per_second: exact === Infinity ? null : perSecond }),
    },
    lost: [...lost, ...known.lost],
  }
}
const newSecret = "the secret: the endpoint has a new one"

const SvixPage = <S extends Schema.Constraint>(item: S) =>
  Schema.Struct({ data: Schema.Array(item), iterator: OptionalText, done: Schema.Boolean })
const SvixApplication = Schema.Struct({
  id: Schema.String,
  uid: OptionalText,
  name: Schema.String,
  rateLimit: OptionalInt,
  throttleRate: OptionalInt,
  metadata: maybe(Texts),
})
const SvixEndpoint = Schema.Struct({
  id: Schema.String,
  uid: OptionalText,
  url: Schema.String,
  description: OptionalText,
  disabled: maybe(Schema.Boolean),
  eventTypes: maybe(Schema.Array(Schema.String)),
  filterTypes: maybe(Schema.Array(Schema.String)),
  channels: maybe(Schema.Array(Schema.String)),
  rateLimit: OptionalInt,
  throttleRate: OptionalInt,
  metadata: maybe(Texts),
})
const SvixHeaders = Schema.Struct({ headers: Texts, sensitive: Schema.optional(Schema.Array(Schema.String)) })

/** Requests in a second. Newer versions of Svix name it `throttleRate`. */
const rateOf = ({ rateLimit, throttleRate }: Pick<typeof SvixApplication.Type, "rateLimit" | "throttleRate">) =>
  throttleRate ?? rateLimit ?? Infinity
const isEmpty = (all: object | null | undefined) => Object.keys(all ?? {}).length === 0

const svix: Read = Effect.fnUntraced(function* (get) {
  const list = <S extends Schema.ConstraintDecoder<unknown>>(path: string, item: S) =>
    allPages((cursor) =>
      Effect.map(get(`${path}?limit=100${after("iterator", cursor)}`, SvixPage(item)), ({ data, done, iterator }) => ({
        items: data,
        next: done ? null : iterator,
      })),
    )
  const all: Array<Found> = []
  for (const application of yield* list("/api/v1/app/", SvixApplication)) {
    const ofAll = rateOf(application)
    const ofApplication = [
      ...(ofAll === Infinity
        ? []
        : [`the limit of the application, ${ofAll} a second: here it holds for each endpoint`]),
      ...(isEmpty(application.metadata) ? [] : ["metadata of the application"]),
    ]
    const of = `/api/v1/app/${application.id}/endpoint/`
    for (const one of yield* list(of, SvixEndpoint)) {
      const { key } = yield* get(`${of}${one.id}/secret/`, Schema.Struct({ key: Schema.String }))
      const { headers, sensitive = [] } = yield* get(`${of}${one.id}/headers/`, SvixHeaders)
      const hidden = sensitive.filter((name) => !(name in headers))
      const isSymmetric = key.startsWith("whsec_")
      const rate = Math.min(rateOf(one), ofAll)
      all.push(
        found({
          owner: { id: application.uid ?? application.id, name: application.name, key: application.id },
          id: one.uid ?? one.id,
          key: one.id,
          url: one.url,
          description: one.description ?? null,
          active: one.disabled !== true,
          headers,
          secret: isSymmetric ? key : null,
          // Older versions say filterTypes.
          types: one.eventTypes ?? one.filterTypes ?? null,
          hidden,
          limit: { count: rate === Infinity ? null : rate },
          more: {
            header_names: "svix",
            channels: one.channels?.length ? one.channels : null,
            ...(isEmpty(one.metadata) ? {} : { metadata: one.metadata! }),
          },
          lost: [
            ...ofApplication,
            ...(hidden.length === 0 ? [] : [`headers that are not shown: ${hidden.join(", ")}`]),
            ...(isSymmetric ? [] : ["the asymmetric key: the endpoint has a new secret"]),
          ],
        }),
      )
    }
  }
  return all
})

const ConvoyPage = <S extends Schema.Constraint>(item: S) =>
  Schema.Struct({
    data: Schema.Struct({
      content: Schema.NullOr(Schema.Array(item)),
      pagination: maybe(
        Schema.Struct({ has_next_page: Schema.optional(Schema.Boolean), next_page_cursor: OptionalText }),
      ),
    }),
  })
const ConvoyEndpoint = Schema.Struct({
  uid: Schema.String,
  url: Schema.String,
  name: OptionalText,
  description: OptionalText,
  owner_id: OptionalText,
  status: OptionalText,
  rate_limit: OptionalInt,
  rate_limit_duration: OptionalInt,
  secrets: maybe(Schema.Array(Schema.Struct({ value: Schema.String, expires_at: OptionalText }))),
  authentication: maybe(
    Schema.Struct({
      type: OptionalText,
      api_key: maybe(Schema.Struct({ header_name: OptionalText, header_value: OptionalText })),
      basic_auth: maybe(Schema.Struct({ username: OptionalText, password: OptionalText })),
      oauth2: maybe(
        Schema.Struct({
          url: OptionalText,
          client_id: OptionalText,
          client_secret: OptionalText,
          scope: OptionalText,
          audience: OptionalText,
          authentication_type: OptionalText,
        }),
      ),
    }),
  ),
  mtls_client_cert: maybe(Schema.Struct({ client_cert: OptionalText, client_key: OptionalText })),
})
type ConvoyEndpoint = typeof ConvoyEndpoint.Type
const ConvoySubscription = Schema.Struct({
  uid: Schema.String,
  endpoint_metadata: maybe(Schema.Struct({ uid: Schema.String })),
  filter_config: maybe(Schema.Struct({ event_types: maybe(Schema.Array(Schema.String)), filter: maybe(Anything) })),
})
/** Filters of single event types, which replace the one of the subscription. Newer versions of Convoy have them. */
const ConvoyFilters = Schema.Struct({
  data: Schema.Array(
    Schema.Struct({
      event_type: Schema.String,
      enabled_at: OptionalText,
      raw_headers: maybe(Anything),
      raw_body: maybe(Anything),
      raw_query: maybe(Anything),
      raw_path: maybe(Anything),
    }),
  ),
})
type ConvoyFilter = (typeof ConvoyFilters.Type)["data"][number]

/** Operators of Convoy's filters, as those of filters here. */
const convoyOperators: Readonly<Record<string, (value: unknown) => unknown>> = {
  $eq: (value) => value,
  $neq: (value) => ({ not: value }),
  $in: (value) => value,
  $nin: (value) => ({ not: value }),
  $gt: (gt) => ({ gt }),
  $gte: (gte) => ({ gte }),
  $lt: (lt) => ({ lt }),
  $lte: (lte) => ({ lte }),
  $exist: (exists) => ({ exists }),
}

/** The filter of a body at Convoy as a filter here; `undefined` when something of it cannot be said here. */
const filterOf = (
  body: Readonly<Record<string, unknown>>,
  path = "",
): Readonly<Record<string, unknown>> | undefined => {
  const all: Record<string, unknown> = {}
  const add = (more: Readonly<Record<string, unknown>> | undefined) => {
    if (more === undefined || Object.keys(more).some((name) => Object.hasOwn(all, name))) return false
    Object.assign(all, more)
    return true
  }
  const isSaid = Object.entries(body).every(([name, value]) => {
    if (name === "$and") return Array.isArray(value) && value.every((one) => isObject(one) && add(filterOf(one, path)))
    if (name === "$or") {
      const some = Array.isArray(value) ? value.map((one) => (isObject(one) ? filterOf(one, path) : undefined)) : []
      return some.length > 0 && !some.includes(undefined) && add({ any: some })
    }
    const field = path === "" ? name : `${path}.${name}`
    if (name.startsWith("$")) return false
    if (!isObject(value)) return add({ [field]: value })
    const operators = Object.entries(value)
    if (!operators.some(([operator]) => operator in convoyOperators)) return add(filterOf(value, field))
    const said = operators.map(([operator, operand]) => convoyOperators[operator]?.(operand))
    if (said.includes(undefined)) return false
    return add({ [field]: said.length === 1 ? said[0] : said.every(isObject) ? Object.assign({}, ...said) : undefined })
  })
  return isSaid && Schema.is(EventFilter)(all) ? all : undefined
}

/** A subscription, with the filters of its event types. */
interface Subscription extends Pick<typeof ConvoySubscription.Type, "endpoint_metadata" | "filter_config"> {
  readonly filters: ReadonlyArray<ConvoyFilter>
}

/** The parts of a filter that have conditions: of the body, the headers, the query or the path. */
const partsOf = (filter: Readonly<Record<string, unknown>> | null | undefined) =>
  Object.fromEntries(Object.entries(filter ?? {}).filter(([, part]) => isObject(part) && Object.keys(part).length > 0))

/** A subscription without types is of all. */
const typesOf = ({ filter_config }: Pick<Subscription, "filter_config">) =>
  filter_config?.event_types?.length ? filter_config.event_types : ["*"]

/** The event types that have another filter than their subscription, or are disabled. */
const typesWithOwnFilter = ({ filters, ...subscription }: Subscription) => {
  const ofAll = JSON.stringify(partsOf(subscription.filter_config?.filter))
  return filters
    .filter(({ enabled_at, event_type, raw_body: body, raw_headers: headers, raw_path: path, raw_query: query }) => {
      const isOther = JSON.stringify(partsOf({ headers, body, query, path })) !== ofAll
      return isOther || enabled_at === null || !typesOf(subscription).includes(event_type)
    })
    .map(({ event_type }) => event_type)
}

/** The filter of all subscriptions of an endpoint. Here it has one, so that they must have the same. */
const convoyFilter = (own: ReadonlyArray<Subscription>) => {
  const parts = own.map(({ filter_config }) => partsOf(filter_config?.filter))
  const [first = {}] = parts
  if (parts.every((one) => Object.keys(one).length === 0)) return { more: { filter: null }, lost: [] }
  const isOne = parts.every((one) => JSON.stringify(one) === JSON.stringify(first))
  const filter =
    isOne && Object.keys(first).join() === "body"
      ? filterOf(first["body"] as Readonly<Record<string, unknown>>)
      : undefined
  return filter === undefined ? { more: {}, lost: ["the filter of a subscription"] } : { more: { filter }, lost: [] }
}

/** How an endpoint authorizes its requests by OAuth2 or a client certificate, as far as Convoy shows it. */
const convoyAuth = ({ authentication, mtls_client_cert: pair }: ConvoyEndpoint) => {
  const { oauth2, type } = authentication ?? {}
  const isOAuth = type === "oauth2"
  const { audience, client_id, client_secret, scope, url } = oauth2 ?? {}
  const isShared = (oauth2?.authentication_type ?? "shared_secret") === "shared_secret" && !audience
  if (isOAuth && url && client_id && client_secret && isShared) {
    const auth = { type, token_url: url, client_id, client_secret, client_auth: "body", ...(scope ? { scope } : {}) }
    return { more: { auth }, lost: pair?.client_cert ? ["the client certificate"] : [] }
  }
  if (isOAuth) return { more: {}, lost: ["OAuth2 credentials"] }
  if (pair?.client_cert && pair.client_key) {
    return { more: { auth: { type: "mtls", certificate: pair.client_cert, private_key: pair.client_key } }, lost: [] }
  }
  return pair?.client_cert ? { more: {}, lost: ["the client certificate"] } : { more: { auth: null }, lost: [] }
}

const convoy: Read = Effect.fnUntraced(function* (get, project) {
  if (project === "") return yield* usage("Set --project to the id of the project at Convoy")
  const of = `/api/v1/projects/${encodeURIComponent(project)}`
  const list = <S extends Schema.ConstraintDecoder<unknown>>(name: string, item: S) =>
    allPages((cursor) =>
      Effect.map(
        get(`${of}/${name}?perPage=100${after("next_page_cursor", cursor)}`, ConvoyPage(item)),
        ({ data: { content, pagination } }) => ({
          items: content ?? [],
          next: pagination?.has_next_page === true ? pagination.next_page_cursor : null,
        }),
      ),
    )
  const subscriptions: Array<Subscription> = []
  for (const one of yield* list("subscriptions", ConvoySubscription)) {
    // Older versions have none.
    const { data } = yield* get(`${of}/subscriptions/${one.uid}/filters`, ConvoyFilters, { data: [] })
    subscriptions.push({ ...one, filters: data })
  }
  return (yield* list("endpoints", ConvoyEndpoint)).map((one) => {
    const own = subscriptions.filter(({ endpoint_metadata }) => endpoint_metadata?.uid === one.uid)
    const [filter, auth, others] = [convoyFilter(own), convoyAuth(one), own.flatMap(typesWithOwnFilter)]
    const { api_key: key, basic_auth: basic } = one.authentication ?? {}
    const owner = one.owner_id || project
    const credential = Buffer.from(`${basic?.username ?? ""}:${basic?.password ?? ""}`).toString("base64")
    const secret = one.secrets?.findLast(({ expires_at }) => expires_at == null || expires_at === "")?.value
    return found({
      owner: { id: owner, name: owner, key: `${project}/${owner}` },
      id: one.uid,
      url: one.url,
      description: one.description || one.name || null,
      secret,
      // An endpoint without a subscription receives nothing there.
      active: one.status !== "inactive" && one.status !== "paused" && own.length > 0,
      types: own.flatMap(typesOf),
      headers: {
        ...(key?.header_name && key.header_value ? { [key.header_name]: key.header_value } : {}),
        ...(basic?.username ? { authorization: `Basic ${credential}` } : {}),
      },
      limit: { count: one.rate_limit, seconds: one.rate_limit_duration || 1 },
      more: { ...filter.more, ...auth.more },
      lost: [
        ...filter.lost,
        ...(others.length === 0 ? [] : [`what is set for single event types: ${others.join(", ")}`]),
        ...auth.lost,
        ...(secret ? [] : [newSecret]),
        "x-convoy-signature: the receiver reads x-webhook-signature",
      ],
    })
  })
})

/** Lists of Outpost and of Hookdeck. */
const Models = <S extends Schema.Constraint>(item: S) =>
  Schema.Struct({ models: Schema.Array(item), pagination: maybe(Schema.Struct({ next: OptionalText })) })
const listModels = <S extends Schema.ConstraintDecoder<unknown>>(get: Get, path: string, item: S) =>
  allPages((cursor) =>
    Effect.map(get(`${path}?limit=100${after("next", cursor)}`, Models(item)), ({ models, pagination }) => ({
      items: models,
      next: pagination?.next,
    })),
  )

const OutpostTenant = Schema.Struct({ id: Schema.String, metadata: maybe(Anything) })
const OutpostDestination = Schema.Struct({
  id: Schema.String,
  type: Schema.String,
  topics: Schema.Union([Schema.String, Schema.Array(Schema.String)]),
  disabled_at: OptionalText,
  filter: maybe(Anything),
  config: Schema.Struct({ url: OptionalText, custom_headers: OptionalText }),
  credentials: maybe(Schema.Struct({ secret: OptionalText })),
})
const HeadersText = Schema.fromJsonString(Texts)

const outpost: Read = Effect.fnUntraced(function* (get) {
  const all: Array<Found> = []
  for (const { id: tenant, metadata } of yield* listModels(get, "/api/v1/tenants", OutpostTenant)) {
    const name = typeof metadata?.["name"] === "string" ? metadata["name"] : tenant
    const path = `/api/v1/tenants/${encodeURIComponent(tenant)}/destinations`
    for (const one of yield* get(path, Schema.Array(OutpostDestination))) {
      const headers = Schema.decodeUnknownOption(HeadersText)(one.config.custom_headers || "{}")
      const secret = one.credentials?.secret
      all.push(
        found({
          owner: { id: tenant, name, key: tenant },
          id: one.id,
          url: one.config.url ?? "",
          active: one.disabled_at == null,
          secret,
          types: [one.topics].flat(),
          headers: Option.getOrElse(headers, () => ({})),
          lost: [
            ...(Option.isNone(headers) ? ["custom_headers: they are no object of texts"] : []),
            ...(one.filter == null || Object.keys(one.filter).length === 0 ? [] : ["the filter"]),
            ...(secret ? [] : [newSecret]),
            "x-outpost-signature: the receiver reads webhook-signature",
          ],
          refusal: one.type === "webhook" ? undefined : `a destination of type ${one.type}`,
        }),
      )
    }
  }
  return all
})

const HookdeckDestination = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  description: OptionalText,
  disabled_at: OptionalText,
  config: maybe(
    Schema.Struct({
      url: OptionalText,
      rate_limit: OptionalInt,
      rate_limit_period: OptionalText,
      auth_type: OptionalText,
    }),
  ),
})
const periods: Readonly<Record<string, number>> = { second: 1, minute: 60, hour: 3600 }

const hookdeck: Read = (get) =>
  Effect.map(listModels(get, "/2025-07-01/destinations", HookdeckDestination), (all) =>
    all.map(({ config, description, disabled_at, id, name }) => {
      const seconds = periods[config?.rate_limit_period ?? "second"]
      return found({
        owner: { id: "hookdeck", name: "Hookdeck", key: "hookdeck" },
        id,
        url: config?.url ?? "",
        active: disabled_at == null,
        description: description || name,
        ...(seconds === undefined ? {} : { limit: { count: config?.rate_limit, seconds } }),
        lost: [
          ...(config?.rate_limit && seconds === undefined ? ["the limit of concurrent requests"] : []),
          ...(config?.auth_type ? [`credentials of the kind ${config.auth_type}`] : []),
          `sources, rules and transformations; ${newSecret}`,
        ],
        refusal: config?.url ? undefined : "a destination without a URL",
      })
    }),
  )

/** How long a try of a request to the other service may take. */
const requestDeadline = "30 seconds"
/** The waits between the tries. `Retry-After` makes one longer. */
const retries = Schedule.exponential("1 second")
const maxRetries = 4

const isBrokenBody = (error: unknown) => HttpClientError.isHttpClientError(error) && error.reason._tag === "DecodeError"

/** Gets JSON from the other service. What may pass (429, 5xx, the network) is tried again. */
const getFrom =
  (base: string, token: Redacted.Redacted): Get =>
  <S extends Schema.ConstraintDecoder<unknown>>(path: string, schema: S, absent?: S["Type"]) =>
    Effect.gen(function* () {
      const url = `${base.replace(/\/+$/, "")}${path}`
      const client = withoutRedirects(yield* HttpClient.HttpClient).pipe(
        // The response keeps its body. What breaks in it is tried again, too.
        HttpClient.tap((response) => response.text),
        HttpClient.transformResponse(Effect.timeout(requestDeadline)),
        HttpClient.retryTransient({ while: isBrokenBody, schedule: retries, times: maxRetries }),
      )
      const request = HttpClientRequest.get(url).pipe(
        HttpClientRequest.bearerToken(Redacted.value(token)),
        HttpClientRequest.acceptJson,
      )
      const response = yield* client
        .execute(request)
        .pipe(Effect.mapError((error) => failure(plain(`${url}: ${refusalOf(error) ?? transportFault(error)}`))))
      const failed = (what: string) => failure(plain(`${url} ${what}`))
      const { status } = response
      if (status === 404 && absent !== undefined) return absent
      if (status !== 200) {
        const isRefused = status === 401 || status === 403
        const isPassing = status === 429 || status >= 500
        const remedy = isRefused ? "Check GATEHOUSE_IMPORT_TOKEN" : isPassing ? "Import again later" : "Check --from"
        return yield* failed(`answered with status ${status}. ${remedy}`)
      }
      const json = yield* Effect.flatMap(response.text, Schema.decodeEffect(JsonText)).pipe(
        Effect.mapError(() => failed("did not answer with JSON. Check --from")),
      )
      return yield* Effect.mapError(Schema.decodeUnknownEffect(schema)(fit(json, shapeOf(schema.ast))), (error) =>
        failed(`has another form than expected: ${cut(faultsOf(error), 500)}`),
      )
    })

/** What an imported endpoint has as its metadata: where it comes from. */
const originOf = (source: string, { key, owner }: Found) => ({ imported: { from: source, owner: owner.key, id: key } })

const isSameOrigin = (metadata: unknown, origin: ReturnType<typeof originOf>) => {
  const one = (metadata as Partial<typeof origin> | null)?.imported
  return (["from", "owner", "id"] as const).every((name) => one?.[name] === origin.imported[name])
}

const endpointIn = (orgId: string, external_id: string) =>
  ask((gatehouse) =>
    gatehouse.webhooks
      .get({ payload: { external_id } })
      .pipe(Effect.catchTag("NotFound", () => Effect.succeed(undefined))),
  ).pipe(
    Effect.provideService(ActFor, Option.some(orgId)),
    Effect.map(({ body }) => body),
  )

type Orgs = Map<string, { readonly orgId: string; readonly isNew: boolean }>

/**
 * Adds the org of each owner. One that exists is used when an endpoint in it says that it was imported for that owner:
 * a name alone could be anybody's. Others are new.
 */
const addOrgs = Effect.fnUntraced(function* (
  made: Orgs,
  source: string,
  found: ReadonlyArray<Found>,
  isDryRun: boolean,
) {
  const orgs = yield* allPages((cursor) =>
    Effect.map(
      ask((gatehouse) => gatehouse.orgs.list({ query: { limit: 100, ...(cursor === "" ? {} : { cursor }) } })),
      ({ body: { nextCursor, orgs } }) => ({ items: orgs, next: nextCursor }),
    ),
  )
  const ofOwners = Map.groupBy(found, ({ owner }) => owner.key)
  for (const [key, endpoints] of ofOwners) {
    const [{ owner }] = endpoints as [Found]
    const name = cut(owner.name, 255)
    const wanted = Schema.is(Name)(name) ? name : owner.id
    let orgId: string | undefined
    for (const org of orgs.filter(({ name }) => name === wanted)) {
      for (const one of endpoints) {
        const endpoint = orgId === undefined ? yield* endpointIn(org.orgId, one.endpoint.external_id) : undefined
        if (endpoint !== undefined && isSameOrigin(endpoint.metadata, originOf(source, one))) orgId = org.orgId
      }
    }
    if (orgId !== undefined || isDryRun) {
      made.set(key, { orgId: orgId ?? `new: ${wanted}`, isNew: orgId === undefined })
    } else {
      const { body } = yield* ask((gatehouse) => gatehouse.orgs.create({ payload: { name: wanted } }))
      made.set(key, { orgId: body.orgId, isNew: true })
    }
  }
})

interface Imported {
  readonly source: string
  readonly org: string
  readonly endpoint: string
  readonly result: "created" | "updated" | "refused" | "would be imported"
  readonly secret: string | null
  readonly lost: ReadonlyArray<string>
}

const decodeEndpoint = Schema.decodeUnknownResult(CreateWebhookEndpoint)

interface Into {
  readonly source: string
  readonly isDryRun: boolean
  readonly isOneOrg: boolean
  readonly orgId: string
  readonly isNew: boolean
  /** What a dry run would have imported before, by owner and external id. */
  readonly before: Map<string, { readonly metadata: unknown }>
}

/**
 * Creates an endpoint, or changes the one with its external id that was imported from it. So a repeat makes nothing
 * twice: it sets what the source has now.
 */
const importOne = Effect.fnUntraced(function* (one: Found, into: Into) {
  const { before, isDryRun, isNew, isOneOrg, orgId, source } = into
  const { endpoint, owner, refusal } = one
  const origin = originOf(source, one)
  const metadata = { ...endpoint.metadata, ...origin }
  const isMetadataKept = Schema.is(Metadata)(metadata) && !Object.hasOwn(endpoint.metadata ?? {}, "imported")
  const lost = isMetadataKept ? one.lost : ["metadata: it is over 4 KiB, or has the name imported", ...one.lost]
  const base = { source: endpoint.external_id, org: orgId, endpoint: "", secret: null, lost }
  const refused = (why: string): Imported => ({ ...base, result: "refused", lost: [why.replace(/\.$/, ""), ...lost] })
  if (refusal !== undefined) return refused(refusal)
  const fault = urlFault(endpoint.url, { httpsOnly: false })
  if (fault !== undefined) return refused(`url ${fault}`)
  if (endpoint.event_types?.length === 0) return refused("none of its event types can exist here")
  const ofOwner = isOneOrg && endpoint.channels == null ? { channels: [owner.id] } : {}
  if ("channels" in ofOwner && !Schema.is(Channels)(ofOwner.channels)) {
    return refused(`the id of its owner is no name of a channel: ${owner.id}`)
  }
  const decoded = decodeEndpoint({
    ...{ payload: "data", ...endpoint, ...ofOwner },
    metadata: isMetadataKept ? metadata : origin,
  })
  if (Result.isFailure(decoded)) return refused(String(decoded.failure).split("\n")[0]!)
  const payload = decoded.success
  const taken = `an endpoint with the external id ${endpoint.external_id} exists that was not imported from it`
  if (isDryRun) {
    const place = `${isOneOrg ? "" : owner.key} ${endpoint.external_id}`
    const existing = before.get(place) ?? (isNew ? undefined : yield* endpointIn(orgId, endpoint.external_id))
    if (existing !== undefined && !isSameOrigin(existing.metadata, origin)) return refused(taken)
    before.set(place, { metadata: origin })
    const isPlain = urlFault(endpoint.url, { httpsOnly: true }) !== undefined
    const all = isPlain ? ["only a service in open mode takes its url, which is not https", ...lost] : lost
    return { ...base, lost: all, result: "would be imported" } satisfies Imported
  }
  const asOrg = Effect.provideService(ActFor, Option.some(orgId))
  return yield* ask((gatehouse) =>
    gatehouse.webhooks.create({ payload }).pipe(
      Effect.map((made): Imported => ({
        ...base,
        endpoint: made.webhook_endpoint_id,
        result: "created",
        secret: made.signing_secret ?? null,
        lost: made.warning === undefined ? lost : [made.warning, ...lost],
      })),
      Effect.catchTag("Conflict", () =>
        Effect.gen(function* () {
          const existing = yield* gatehouse.webhooks.get({ payload: { external_id: endpoint.external_id } })
          if (!isSameOrigin(existing.metadata, origin)) return refused(taken)
          const id = existing.webhook_endpoint_id
          // The endpoint keeps the secret that was made for it.
          const { generate_signing_secret: _, headers, ...changes } = payload
          // Those that somebody has set here, because the source does not show them, would go with the others.
          const isOwn = existing.headers?.some((name) => one.hidden?.includes(name)) === true
          yield* gatehouse.webhooks.update({
            payload: { id, ...changes, ...(headers === undefined || isOwn ? {} : { headers }) },
          })
          return { ...base, endpoint: id, result: "updated" } satisfies Imported
        }),
      ),
      Effect.catchTag(["InvalidRequest", "LimitReached"], ({ error }) => Effect.succeed(refused(error))),
    ),
  ).pipe(
    asOrg,
    Effect.map(({ body }) => body),
  )
})

const importFrom = (source: string, from: string, read: Read, about: string) =>
  Command.make(
    source,
    {
      from: Flag.String("from").pipe(
        Flag.withDescription(`The address of the API (default: ${from})`),
        Flag.withDefault(from),
      ),
      project: Flag.String("project").pipe(
        Flag.withDescription("The id of the project there (Convoy)"),
        Flag.withDefault(""),
      ),
      into: textFlag(
        "into",
        "An org that exists, for all endpoints, with their owners as channels (default: a new org for each owner)",
      ),
      dryRun: switchFlag("dry-run", "Change nothing, only say what would be"),
    },
    Effect.fnUntraced(function* ({ dryRun: isDryRun, from, into, project }) {
      if (project !== "" && read !== convoy) return yield* usage("--project is for the import from Convoy alone")
      yield* checkAddress(from)
      const token = yield* readSecret(`The token of ${source}`, "GATEHOUSE_IMPORT_TOKEN")
      if (token === undefined)
        return yield* usage(`Set GATEHOUSE_IMPORT_TOKEN to a token of ${source} that may read endpoints`)
      // Fails for an org that does not exist, also in a dry run.
      if (Option.isSome(into)) {
        const list = ask((gatehouse) => gatehouse.webhooks.list({ payload: { limit: 1 } }))
        yield* Effect.provideService(list, ActFor, into)
      }
      const found = yield* read(getFrom(from, token), project)
      const results: Array<Imported> = []
      const orgs: Orgs = new Map()
      const before: Into["before"] = new Map()
      const importing = Effect.gen(function* () {
        if (Option.isNone(into)) yield* addOrgs(orgs, source, found, isDryRun)
        for (const one of found) {
          const org = orgs.get(one.owner.key) ?? { orgId: Option.getOrThrow(into), isNew: false }
          results.push(yield* importOne(one, { ...org, source, isDryRun, isOneOrg: Option.isSome(into), before }))
        }
      })
      /** What is imported, also before a fault: a secret that was made is shown nowhere else. */
      const report = Effect.gen(function* () {
        yield* print(results.map((one) => JSON.stringify(one)).join("\n"), {
          out: table(
            ["SOURCE", "ORG", "ENDPOINT", "RESULT", "NEW SECRET", "NOT IMPORTED"],
            results.map((one) => [one.source, one.org, one.endpoint, one.result, one.secret, one.lost.join("; ")]),
          ),
        })
        // An org without an endpoint could not be found again.
        for (const { isNew, orgId } of orgs.values()) {
          const isEmpty = results.every((one) => one.org !== orgId || one.result === "refused")
          if (isNew && isEmpty && !isDryRun) yield* ask((gatehouse) => gatehouse.orgs.remove({ params: { orgId } }))
        }
      })
      yield* Effect.onExit(importing, (exit) => (Exit.isSuccess(exit) ? report : Effect.ignore(report)))
      const count = (result: Imported["result"]) => results.filter((one) => one.result === result).length
      yield* Console.error(
        isDryRun
          ? `${count("would be imported")} of ${counted(results.length, "endpoint")} would be imported, as far as the limits of the orgs allow.`
          : `Endpoints: ${count("created")} created, ${count("updated")} updated, ${count("refused")} refused.`,
      )
      if (count("refused") > 0) return yield* failure("Some endpoints are not imported, see above")
    }),
  ).pipe(Command.withDescription(about))

export const imports = group(
  "import",
  "Import the webhook endpoints of another service; its token comes from GATEHOUSE_IMPORT_TOKEN",
  [
    importFrom("svix", "https://api.svix.com", svix, "Import the applications and endpoints of Svix"),
    importFrom("convoy", "https://us.getconvoy.cloud", convoy, "Import the endpoints of a project of Convoy"),
    importFrom("outpost", "http://localhost:3333", outpost, "Import the tenants and webhook destinations of Outpost"),
    importFrom("hookdeck", "https://api.hookdeck.com", hookdeck, "Import the destinations of Hookdeck"),
  ],
).pipe(
  Command.withExamples([
    { command: "GATEHOUSE_IMPORT_TOKEN=… gatehouse import svix --dry-run" },
    {
      command:
        "GATEHOUSE_IMPORT_TOKEN=… gatehouse import convoy --from https://convoy.example.com --project 01HX… --into 01KA…",
    },
  ]),
)
