import { createHmac } from "node:crypto"
import { signingSecret } from "../workload.ts"
import {
  type Done,
  hasStepped,
  type History,
  isTouched,
  isUncertain,
  lamingKinds,
  type Received,
  succeeded,
  type Violation,
} from "../history.ts"

/** Attempts of a delivery with the delays that the simulation sets. Then it may fail. */
const maxAttempts = 9
/** How long an attempt that began before a deletion may take to arrive. */
const inFlightMillis = 20_000
/**
 * How long after a deletion of its org an endpoint may get something: until a replica hears of it, as of that of a key.
 */
const newsMillis = 1_500
/** How long before a receipt its delivery was claimed at most, and after it recorded, while nothing is wrong. */
const recordMillis = 20_000

const isOk = ({ status }: Received) => status !== undefined && status >= 200 && status < 300
const markOf = ({ body }: Received) => /"mark":"([^"]+)"/.exec(body)?.[1]
const seconds = (millis: number) => `${(millis / 1000).toFixed(3)} s`

const callbackOf = ({ args }: Done) => args["callback_url"] as string | undefined

/** What an endpoint got of a request: all of it, or one of the events of a batch. */
interface Receipt extends Received {
  readonly request: Received
}

interface Endpoint {
  /** `undefined`: the callback of a job. */
  readonly id: string | undefined
  readonly url: string
  readonly tenant: string
  readonly made: Done
  readonly received: ReadonlyArray<Receipt>
  /** What has changed it, or may have. */
  readonly changes: ReadonlyArray<Done>
  /** Whether its receiver has ever said that it is gone. */
  readonly isGone: boolean
  readonly isOrdered: boolean
  readonly maxPerSecond: number | undefined
  /** Its channels; `undefined`: it gets the events of all. */
  readonly channels: ReadonlyArray<string> | undefined
  /** The tier of the events that its filter lets through; `undefined`: it has none. */
  readonly tier: string | undefined
}

/** The events of a request, each with the id of its delivery. */
const receiptsOf = ({ rows }: History, made: Done, request: Received): ReadonlyArray<Receipt> => {
  if (made.args["batch"] === undefined) return [{ ...request, request }]
  return (JSON.parse(request.body) as ReadonlyArray<unknown>).map((part) => {
    const body = JSON.stringify(part)
    const event = rows["events"]!.find((row) => row["body"] === body)
    const delivery = rows["deliveries"]!.find(
      (row) => row["event_id"] === event?.["id"] && row["endpoint_id"] === made.body.webhook_endpoint_id,
    )
    return { ...request, body, id: delivery === undefined ? undefined : String(delivery["id"]), request }
  })
}

/** The endpoints, and the callbacks of jobs, which are endpoints of one event. */
const endpointsOf = (history: History): ReadonlyArray<Endpoint> => {
  const { done, received } = history
  return done
    .filter((one) => succeeded(one) && (one.kind === "createEndpoint" || callbackOf(one) !== undefined))
    .map((made) => {
      const url = callbackOf(made) ?? (made.args["url"] as string)
      const own = received.filter((one) => one.url === url).flatMap((one) => receiptsOf(history, made, one))
      const id = callbackOf(made) === undefined ? made.body.webhook_endpoint_id : undefined
      return {
        id,
        url,
        tenant: made.tenant,
        made,
        received: own,
        changes: done.filter(
          ({ args, kind, tenant }) =>
            tenant === made.tenant &&
            (args["url"] === url ||
              kind === "deleteOrg" ||
              (kind === "retryDelivery" && (args["endpointId"] ?? undefined) === id) ||
              (kind === "resend" && args["url"] === undefined)) &&
            kind !== "createEndpoint",
        ),
        isGone: own.some(({ status }) => status === 410),
        isOrdered: made.args["ordered"] === true,
        maxPerSecond: made.args["max_per_second"] as number | undefined,
        channels: made.args["channels"] as ReadonlyArray<string> | undefined,
        tier: (made.args["filter"] as { readonly "data.tier": string } | undefined)?.["data.tier"],
      }
    })
}

/** An event that a client published, or one of a batch. */
interface Published {
  readonly id: string
  readonly mark: string
  readonly tenant: string
  readonly by: Done
  readonly place: number
  readonly channels: ReadonlyArray<string>
  /** `undefined`: the event of a job, or one that is of no tier. */
  readonly tier: string | undefined
}

/** Whether an event is for an endpoint: it gets only what was published to its channels, and passes its filter. */
const isFor = ({ channels, tier }: Endpoint, event: Published) =>
  (channels === undefined || channels.some((one) => event.channels.includes(one))) &&
  (tier === undefined || tier === event.tier)

const publishedOf = (done: ReadonlyArray<Done>): ReadonlyArray<Published> =>
  done
    .filter((one) => one.kind.startsWith("publish") && succeeded(one))
    .flatMap((by) => {
      const ids = (by.body.event_ids ?? [by.body.event_id]) as ReadonlyArray<string>
      const marks = by.args["marks"] as ReadonlyArray<string>
      const channels = by.args["channels"] as ReadonlyArray<ReadonlyArray<string>>
      const tiers = by.args["tiers"] as ReadonlyArray<string> | undefined
      return ids.map((id, place) => {
        const [mark, tier] = [marks[place]!, tiers?.[place]]
        return { id, mark, tenant: by.tenant, by, place, channels: channels[place]!, tier }
      })
    })

/** The events of the jobs that workers completed, which endpoints get like those that clients publish. */
const completedOf = ({ done, rows }: History): ReadonlyArray<Published> => {
  const silent = new Set(
    done.flatMap(({ args, body, kind }) =>
      kind === "createJob" && (args["skip_callbacks"] === true || "callback_url" in args) ? [body?.job_id] : [],
    ),
  )
  const events = Map.groupBy(rows["events"]!, (row) => row["job_id"])
  const reports = done.toSorted((one, other) => one.start - other.start)
  const seen = new Set<unknown>()
  return reports.flatMap((by): ReadonlyArray<Published> => {
    if (by.kind !== "complete" || !succeeded(by) || silent.has(by.args["jobId"] as string)) return []
    const { mark } = by.args["result"] as { readonly mark: string }
    // A report that was repeated says nothing new: the event is the first one's, and has its result.
    const event = events.get(by.args["jobId"])?.find(({ body }) => String(body).includes(`"${mark}"`))
    if (event === undefined || seen.has(event["id"])) return []
    seen.add(event["id"])
    return [{ id: String(event["id"]), mark, tenant: by.tenant, by, place: 0, channels: [], tier: undefined }]
  })
}

const endsDeliveries = ({ args, kind }: Done) =>
  kind === "deleteEndpoint" || kind === "deleteOrg" || (kind === "updateEndpoint" && args["active"] === false)

/** Nothing that was published is lost: each endpoint of its time gets it, or has used up its attempts. */
const lost = (history: History, published: ReadonlyArray<Published>, endpoints: ReadonlyArray<Endpoint>) => {
  const deleted = new Set(history.done.filter(({ kind }) => kind === "deleteOrg").map(({ tenant }) => tenant))
  const stored = new Set(history.rows["events"]!.map(({ id }) => id))
  const attempts = new Map(
    history.rows["deliveries"]!.map((row) => [`${String(row["event_id"])} ${String(row["endpoint_id"])}`, row]),
  )
  return published.flatMap((event): ReadonlyArray<Violation> => {
    if (deleted.has(event.tenant)) return []
    if (!stored.has(event.id)) {
      return [{ oracle: "lost", at: event.by.end, what: `the event ${event.mark} was accepted and is not stored` }]
    }
    return endpoints.flatMap((endpoint): ReadonlyArray<Violation> => {
      const isWanted =
        endpoint.tenant === event.tenant &&
        endpoint.id !== undefined &&
        isFor(endpoint, event) &&
        endpoint.made.end < event.by.start &&
        !endpoint.isGone &&
        !endpoint.changes.some(endsDeliveries)
      if (!isWanted || endpoint.received.some((one) => isOk(one) && markOf(one) === event.mark)) return []
      const row = attempts.get(`${event.id} ${endpoint.id}`)
      if (row?.["state"] === "failed" && Number(row["attempts"]) >= maxAttempts) return []
      const state =
        row === undefined ? "has no delivery" : `is ${String(row["state"])} after ${String(row["attempts"])} attempts`
      return [{ oracle: "lost", at: history.endAt, what: `${endpoint.url} never got ${event.mark}: it ${state}` }]
    })
  })
}

/** An endpoint with channels or a filter gets no event of others, and none of a job. */
const misdirected = (published: ReadonlyArray<Published>, endpoint: Endpoint): ReadonlyArray<Violation> => {
  if (endpoint.channels === undefined && endpoint.tier === undefined) return []
  const events = new Map(published.map((event) => [event.mark, event]))
  return endpoint.received.flatMap((one): ReadonlyArray<Violation> => {
    const event = events.get(markOf(one) ?? "")
    // Whoever published it may have got no answer.
    if (event === undefined ? !one.body.includes('"job_id"') : isFor(endpoint, event)) return []
    const own = [...(endpoint.channels ?? []), endpoint.tier].filter(Boolean)
    const what = `${endpoint.url} of ${own.join(", ")} got ${String(markOf(one))}`
    return [{ oracle: "channels", at: one.at, what }]
  })
}

/** An endpoint is found by its external id, and by no other. */
const found = ({ done }: History): ReadonlyArray<Violation> =>
  done.flatMap(({ args, body, end, kind, start, status, tenant }): ReadonlyArray<Violation> => {
    if (kind !== "getEndpoint" || (status !== 200 && status !== 404)) return []
    const own = done.filter((one) => one.tenant === tenant && one.args["external_id"] === args["externalId"])
    const sure = own.filter((one) => succeeded(one) && one.end < start)
    const isDeleted = (made: Done) =>
      done.some((one) => one.kind === "deleteEndpoint" && one.args["url"] === made.args["url"] && one.start < end)
    const id = status === 200 ? body.webhook_endpoint_id : undefined
    const isKnown = own.some((one) => one.body?.webhook_endpoint_id === id || one.tries.some(isUncertain))
    if (status === 200 ? isKnown : sure.every(isDeleted)) return []
    const what = `${String(args["externalId"])} of ${tenant} is answered with ${id ?? "nothing"}`
    return [{ oracle: "external ids", at: end, what }]
  })

/** The callback of a finished job is called with its event, and no other. */
const calledBack = ({ endAt, rows }: History, endpoint: Endpoint): ReadonlyArray<Violation> => {
  if (endpoint.id !== undefined || endpoint.isGone || endpoint.changes.some(endsDeliveries)) return []
  const id = endpoint.made.body.job_id
  const job = rows["jobs"]!.find((row) => row["id"] === id)
  // A job that was retried has several.
  const events = rows["events"]!.filter((row) => row["job_id"] === id)
  const event = events.at(-1)
  const isFinished = job?.["status"] === "completed" || job?.["status"] === "failed"
  const says = (what: string) => [{ oracle: "callbacks", at: endAt, what: `${endpoint.url} ${what}` }]
  if ((!isFinished && events.length === 0) || endpoint.made.args["skip_callbacks"] === true) {
    return endpoint.received.length === 0 ? [] : says(`was called, and job ${id} calls nobody`)
  }
  if (endpoint.received.some(({ body }) => !events.some((one) => one["body"] === body)))
    return says("got another event")
  if (endpoint.received.some(isOk)) return []
  const row = rows["deliveries"]!.find((one) => one["event_id"] === event?.["id"])
  const isGivenUp = row?.["state"] === "failed" && Number(row["attempts"]) >= maxAttempts
  return isGivenUp ? [] : says(`was never called: it is ${String(row?.["state"])}`)
}

/** The bytes that an endpoint gets of an event: all of it, or its data. A job's event has none. */
const bytesFor = ({ made }: Endpoint, stored: unknown) => {
  const { data } = JSON.parse(String(stored)) as { readonly data?: unknown }
  return made.args["payload"] === "data" && data !== undefined ? JSON.stringify(data) : stored
}

/** Each receiver gets what is stored for it, byte for byte, with a signature that holds. */
const honest = ({ rows }: History, endpoint: Endpoint): ReadonlyArray<Violation> => {
  const rowsById = new Map(rows["deliveries"]!.map((row) => [row["id"], row]))
  const events = new Map(rows["events"]!.map((row) => [row["id"], row]))
  const names = (endpoint.made.args["header_names"] as string | undefined) ?? "webhook"
  const { max } = (endpoint.made.args["batch"] as { readonly max: number } | undefined) ?? { max: 1 }
  const sizes = Map.groupBy(endpoint.received, ({ request }) => request)
  return endpoint.received.flatMap(({ at, body, headers, id, request }): ReadonlyArray<Violation> => {
    const says = (what: string) => [{ oracle: "honest", at, what: `${endpoint.url} ${what}` }]
    if (sizes.get(request)!.length > max) return says(`got ${sizes.get(request)!.length} events in a request`)
    const mac = createHmac("sha256", signingSecret).update(request.body).digest("hex")
    if (headers["x-webhook-signature"] !== mac) return says("got a signature that does not hold")
    const content = `${String(request.id)}.${String(headers[`${names}-timestamp`])}.${request.body}`
    const standard = `v1,${createHmac("sha256", signingSecret).update(content).digest("base64")}`
    if (headers[`${names}-id`] !== request.id || !String(headers[`${names}-signature`]).split(" ").includes(standard))
      return says(`got no ${names} headers that hold`)
    const row = rowsById.get(id)
    // Nothing of a deleted org is left to compare with.
    if (row === undefined)
      return endpoint.changes.some(({ kind }) => kind === "deleteOrg") ? [] : says("got no delivery")
    if (endpoint.id !== undefined && row["endpoint_id"] !== endpoint.id) return says("got another endpoint's delivery")
    const event = events.get(row["event_id"])
    const isRight = event !== undefined && bytesFor(endpoint, event["body"]) === body
    return isRight ? [] : says("got other bytes than those of the event")
  })
}

/**
 * Whether a client's request makes a delivery again that was received at a time. A retry is of one delivery, which may
 * have been delivered before. A resend takes only what is not delivered: what was in flight then.
 */
const asksAgain = (
  history: History,
  { args, body, end, kind, start, tries }: Done,
  id: string,
  from: number,
  to: number,
) => {
  if (start > to || end < from - recordMillis) return false
  if (kind === "retryDelivery") return args["deliveryId"] === id
  if (kind !== "recover" && kind !== "resend") return false
  if (start - recordMillis > from) return false
  // An attempt in flight is recorded, also after the resend has moved its delivery. Only a disturbed sender cannot.
  const isSwept = kind === "recover" || body?.resend_id != null || tries.some(isUncertain)
  return isSwept && isLamed(history, from)
}

/** No event is delivered twice except where a fault, or a client's own request, explains it. */
const twice = (history: History, endpoint: Endpoint): ReadonlyArray<Violation> => {
  const last = new Map<string, Received>()
  return endpoint.received.flatMap((one): ReadonlyArray<Violation> => {
    const { id } = one
    // What is left of a deleted org does not say which delivery it was.
    if (id === undefined) return []
    const before = last.get(id)
    if (isOk(one)) last.set(id, one)
    if (before === undefined) return []
    const isAsked = endpoint.changes.some((change) => asksAgain(history, change, id, before.at, one.at))
    // Whoever sent it first could not record it; or a clock ended its lease.
    const isExplained =
      isTouched(history, lamingKinds, before.from, before.at - recordMillis, before.at + recordMillis) ||
      hasStepped(history, one.at)
    if (isAsked || isExplained) return []
    return [{ oracle: "twice", at: one.at, what: `${endpoint.url} got ${id} at ${seconds(before.at)}, and again` }]
  })
}

/** An ordered endpoint gets no event before the earlier ones are delivered. */
const order = (published: ReadonlyArray<Published>, endpoint: Endpoint): ReadonlyArray<Violation> => {
  if (!endpoint.isOrdered || endpoint.isGone || endpoint.changes.length > 0) return []
  const own = published.filter(({ by, tenant }) => tenant === endpoint.tenant && by.start > endpoint.made.end)
  const times = own.map((event) => {
    const receipts = endpoint.received.filter((one) => markOf(one) === event.mark)
    return { event, first: receipts[0]?.at ?? Infinity, delivered: receipts.find(isOk)?.at }
  })
  return times.flatMap(({ event: later, first }) =>
    times.flatMap(({ delivered, event: earlier }): ReadonlyArray<Violation> => {
      const isEarlier = earlier.by === later.by ? earlier.place < later.place : earlier.by.end < later.by.start
      if (!isEarlier || delivered === undefined || first >= delivered) return []
      return [{ oracle: "order", at: first, what: `${endpoint.url} got ${later.mark} before ${earlier.mark}` }]
    }),
  )
}

/** What a client sends again, and is answered as due, is sent. */
const resent = (endpoint: Endpoint): ReadonlyArray<Violation> => {
  if (endpoint.isGone || endpoint.changes.some(endsDeliveries)) return []
  return endpoint.changes.flatMap((one): ReadonlyArray<Violation> => {
    const { deliveryId, endpointId } = one.args
    if (one.kind !== "retryDelivery" || endpointId !== endpoint.id || !succeeded(one)) return []
    const isSent = endpoint.received.some(({ at, id }) => id === deliveryId && at > one.start - inFlightMillis)
    if (isSent) return []
    return [{ oracle: "resent", at: one.end, what: `${endpoint.url} did not get ${String(deliveryId)} again` }]
  })
}

/** What a resend selects is sent again: at the end nothing of before is left as it was. */
const swept = (history: History, endpoint: Endpoint): ReadonlyArray<Violation> => {
  if (endpoint.id === undefined || endpoint.isGone || hasStepped(history, Infinity)) return []
  const { changes, id, received, url } = endpoint
  const activity = changes.filter(({ args }) => "active" in args)
  const last = activity.at(-1)
  const isActive = last === undefined || (last.args["active"] === true && succeeded(last))
  if (!isActive || changes.some(({ kind }) => kind === "deleteEndpoint" || kind === "deleteOrg")) return []
  const [madeAt, rows] = [new Map<unknown, number>(), history.rows["deliveries"]!]
  for (const { by, id } of publishedOf(history.done)) madeAt.set(id, by.end)
  return changes.flatMap((one): ReadonlyArray<Violation> => {
    const isAfterAll = activity.every(({ end }) => end < one.start)
    const isEnded = history.done.some(
      ({ args, kind }) => kind === "cancelResend" && args["resendId"] === one.body?.resend_id,
    )
    const isAll = (one.kind === "recover" || one.kind === "resend") && one.args["until"] !== undefined && !isEnded
    if (!isAll || !isAfterAll || !succeeded(one) || isLamed(history, one.start)) return []
    const isLeft = rows.find((row) => {
      if (row["endpoint_id"] !== id || !((madeAt.get(row["event_id"]) ?? Infinity) < one.start)) return false
      if (row["state"] === "skipped" || row["state"] === "canceled") return true
      const sent = received.filter(({ id }) => id === row["id"])
      return row["state"] === "failed" && sent.every(({ at }) => at < one.start - inFlightMillis)
    })
    if (isLeft === undefined) return []
    const what = `${url} did not get ${String(isLeft["id"])} again by ${one.kind}: it is ${String(isLeft["state"])}`
    return [{ oracle: "resent", at: one.end, what }]
  })
}

/** Whether anything kept a replica from its work shortly before a time: an attempt may be recorded after it. */
const isLamed = ({ faults }: History, at: number) =>
  faults.some(({ end, kind, start }) => lamingKinds.has(kind) && start <= at && end >= at - 60_000)

/** A deleted endpoint, and one of a deleted org, gets nothing but what was in flight. */
const afterEnd = (history: History, endpoint: Endpoint): ReadonlyArray<Violation> => {
  const ended = endpoint.changes.find(
    (one) => (one.kind === "deleteEndpoint" || one.kind === "deleteOrg") && succeeded(one),
  )
  if (ended === undefined) return []
  return endpoint.received.flatMap((one): ReadonlyArray<Violation> => {
    const isLate = one.at > ended.end + (ended.kind === "deleteOrg" ? newsMillis : inFlightMillis)
    if (!isLate || isTouched(history, lamingKinds, one.from, ended.start - 10_000, one.at)) return []
    return [
      {
        oracle: "after its end",
        at: one.at,
        what: `${endpoint.url} got something ${seconds(one.at - ended.end)} after ${ended.kind}`,
      },
    ]
  })
}

/** What is sent has the headers that were set last. */
const headers = (history: History, { changes, received, url }: Endpoint): ReadonlyArray<Violation> => {
  const sets = changes.filter((one) => "headers" in one.args && one.status !== 404)
  if (sets.length === 0) return []
  const valueOf = ({ args }: Done) => (args["headers"] as Readonly<Record<string, string>>)["x-mark"]
  return received.flatMap((one): ReadonlyArray<Violation> => {
    const settled = sets.filter((set) => succeeded(set) && set.end < one.at - inFlightMillis)
    const since = Math.max(-Infinity, ...settled.map(({ start }) => start))
    const allowed = sets.filter(({ end, start }) => start < one.at && end >= since).map(valueOf)
    const isFresh = settled.length === 0 || allowed.includes(one.headers["x-mark"])
    if (isFresh || isTouched(history, lamingKinds, one.from, one.at - 60_000, one.at)) return []
    const what = `${url} got the header ${String(one.headers["x-mark"])} ${seconds(one.at - since)} after ${allowed.join(" or ")}`
    return [{ oracle: "headers", at: one.at, what }]
  })
}

/** An endpoint with a limit per second gets no more, while nothing is wrong. */
const throttle = (history: History, { changes, maxPerSecond, received, url }: Endpoint): ReadonlyArray<Violation> => {
  if (maxPerSecond === undefined || changes.some(({ kind }) => kind === "updateEndpoint")) return []
  for (const [n, first] of received.entries()) {
    // A request takes up to 40 ms to arrive, and may begin 30 ms late.
    const within = received.slice(n).filter(({ at }) => at < first.at + 920)
    if (within.length <= maxPerSecond) continue
    if (history.faults.some(({ end, start }) => start <= first.at + 1_000 && end >= first.at - 10_000)) continue
    return [
      {
        oracle: "throttle",
        at: within.at(-1)!.at,
        what: `${url} got ${within.length} requests in a second, not ${maxPerSecond}`,
      },
    ]
  }
  return []
}

/** What a receiver may get, and must get. */
export const deliveries = (history: History): ReadonlyArray<Violation> => {
  const endpoints = endpointsOf(history)
  const published = [...publishedOf(history.done), ...completedOf(history)]
  return [
    ...lost(history, published, endpoints),
    ...found(history),
    ...endpoints.flatMap((endpoint) => [
      ...calledBack(history, endpoint),
      ...misdirected(published, endpoint),
      ...honest(history, endpoint),
      ...twice(history, endpoint),
      ...resent(endpoint),
      ...swept(history, endpoint),
      ...order(published, endpoint),
      ...afterEnd(history, endpoint),
      ...throttle(history, endpoint),
      ...headers(history, endpoint),
    ]),
  ]
}
