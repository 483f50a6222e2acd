import type { EndpointDetail } from "./endpoints.ts"

/** What the form of an endpoint holds: texts, as they are typed. */
export interface Fields {
  readonly url: string
  readonly description: string
  readonly signing_secret: string
  /** One on each line. */
  readonly event_types: string
  readonly ordered: boolean
  readonly max_per_second: string
  /** Seconds with commas. */
  readonly retry_delays: string
  readonly signature: "hmac" | "ed25519"
  /** undefined: they stay as they are. */
  readonly headers: ReadonlyArray<readonly [name: string, value: string]> | undefined
}

export const emptyFields: Fields = {
  url: "",
  description: "",
  signing_secret: "",
  event_types: "",
  ordered: false,
  max_per_second: "",
  retry_delays: "",
  signature: "hmac",
  headers: undefined,
}

export const fieldsOf = (endpoint: EndpointDetail): Fields => ({
  ...emptyFields,
  url: endpoint.url,
  description: endpoint.description ?? "",
  event_types: endpoint.event_types?.join("\n") ?? "",
  ordered: endpoint.ordered,
  max_per_second: endpoint.max_per_second === null ? "" : String(endpoint.max_per_second),
  retry_delays: endpoint.retry_delays === null ? "" : endpoint.retry_delays.join(", ") || "none",
  signature: endpoint.signature,
})

const textOrNull = (text: string) => (text.trim() === "" ? null : text.trim())

const listOf = (text: string) => {
  const list = text.split(/[\s,]+/).filter(Boolean)
  return list.length === 0 ? null : list
}

/** "none" is no retries; a number that is none is sent as it is typed, and the service says what is wrong with it. */
const delaysOf = (text: string) => {
  if (text.trim().toLowerCase() === "none") return []
  return listOf(text)?.map((part) => (Number.isNaN(Number(part)) ? part : Number(part))) ?? null
}

const valuesOf = (fields: Fields) => ({
  url: fields.url.trim(),
  description: textOrNull(fields.description),
  event_types: listOf(fields.event_types),
  ordered: fields.ordered,
  max_per_second: fields.max_per_second === "" ? null : Number(fields.max_per_second),
  retry_delays: delaysOf(fields.retry_delays),
  signature: fields.signature,
})

/** The fields of a request that differ from what is stored; from the defaults, when nothing is stored yet. */
export const changesOf = (fields: Fields, stored: EndpointDetail | undefined): Readonly<Record<string, unknown>> => {
  const before: Readonly<Record<string, unknown>> = valuesOf(stored === undefined ? emptyFields : fieldsOf(stored))
  const changes: Record<string, unknown> = Object.fromEntries(
    Object.entries(valuesOf(fields)).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(before[name])),
  )
  if (fields.signing_secret !== "") changes["signing_secret"] = fields.signing_secret
  const headers = fields.headers?.filter(([name]) => name.trim() !== "")
  if (headers !== undefined) changes["headers"] = headers.length === 0 ? null : Object.fromEntries(headers)
  return changes
}
