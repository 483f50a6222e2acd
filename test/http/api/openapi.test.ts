/* oxlint-disable vitest/no-conditional-expect -- what is expected of an operation depends on the operation */
import { expect, it } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { serviceEventTypes } from "#src/domain/ServiceEvent.ts"
import { Api } from "#src/http/api/Api.ts"

type Json = Readonly<Record<string, unknown>>
interface Operation extends Json {
  readonly parameters: ReadonlyArray<Json>
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Json }>> }
  readonly responses: Readonly<Record<string, Json>>
}
type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>
interface Document extends Json {
  readonly info: Json
  readonly paths: Paths
  readonly webhooks: Readonly<Record<string, { readonly $ref: string }>>
  readonly components: Readonly<Record<"schemas" | "responses" | "headers" | "securitySchemes", Json>> & {
    readonly pathItems: Paths
  }
}

const document = OpenApi.fromApi(Api) as unknown as Document
const { components, info, paths } = document
/** The path items of the webhooks, by the type of the event. */
const webhooks = Object.fromEntries(
  Object.entries(document.webhooks).map(([type, { $ref }]) => [type, components.pathItems[$ref.split("/").at(-1)!]!]),
)
const schemas = components.schemas as Readonly<Record<string, Json>>
const operations = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({ at: `${method.toUpperCase()} ${path}`, path, operation })),
)

/** Every object in a value, with its path: parameters by their names. Data (examples, defaults) is left out. */
const nodes = (value: unknown, at = ""): ReadonlyArray<readonly [string, Json]> => {
  if (typeof value !== "object" || value === null) return []
  const inner = Object.entries(value)
    .filter(([name]) => !["example", "examples", "default"].includes(name))
    .flatMap(([name, one]) => nodes(one, `${at}/${at.endsWith("/parameters") ? (one as Json)["name"] : name}`))
  return [...(Array.isArray(value) ? [] : [[at, value as Json] as const]), ...inner]
}
const everything = nodes(document)

const refsOf = (value: unknown): ReadonlyArray<string> =>
  nodes(value).flatMap(([, { $ref }]) => (typeof $ref === "string" ? [$ref.split("/").at(-1)!] : []))
/** The names of all schemas that a value refers to, directly or through others. */
const reached = (value: unknown, found = new Set<string>()): Set<string> => {
  for (const name of refsOf(value)) {
    if (!found.has(name) && name in schemas) reached(schemas[name], found.add(name))
  }
  return found
}
const requests = operations.map(({ operation }) => operation.requestBody)
const answers = [
  operations.map(({ operation }) => operation.responses),
  components.responses,
  Object.values(webhooks).map((one) => one["post"]!.requestBody),
]

it("has its licence, contact and server", () => {
  expect(info["license"]).toEqual({ name: "MIT", identifier: "MIT" })
  expect(info["contact"]).toMatchObject({ name: expect.stringMatching(/./) })
  expect(document["servers"]).toEqual([{ url: expect.stringMatching(/^http/), description: expect.any(String) }])
})

it("has no boolean with one value, no null beside a plain type in anyOf, and no _tag", () => {
  for (const [at, node] of everything) {
    const values = (node["enum"] as ReadonlyArray<unknown> | undefined) ?? ("const" in node ? [node["const"]] : [])
    expect(
      values.filter((value) => typeof value === "boolean"),
      at,
    ).toEqual([])
    const members = (node["anyOf"] as ReadonlyArray<Json> | undefined) ?? []
    if (members.some(({ type }) => type === "null")) {
      expect(
        members.filter(({ $ref, type }) => $ref === undefined && type !== "null" && type !== "object"),
        at,
      ).toEqual([])
    }
  }
  expect(JSON.stringify(document)).not.toContain('"_tag"')
})

it("answers may get new fields and values; requests are exact", () => {
  const inAnswers = reached(answers)
  const nodesOf = [...inAnswers].flatMap((name) => nodes(schemas[name], name)).concat(nodes(answers, "answers"))
  for (const [at, node] of nodesOf) {
    expect(node["additionalProperties"], at).not.toBe(false)
    // The codes of a status are exact: see the errors below.
    if (at.includes("/headers/") || at.endsWith("Error/properties/code")) continue
    expect(node["enum"], at).toBeUndefined()
    if (node["x-extensible-enum"] !== undefined) expect(String(node["description"]), at).toContain("nown values: ")
  }
  for (const name of ["code", "event", "action", "status", "state"]) {
    const open = nodesOf.filter(([at, node]) => at.endsWith(`/properties/${name}`) && node["x-extensible-enum"])
    expect(open.length, name).toBeGreaterThan(0)
  }
  for (const name of [...reached(requests)].filter((one) => !inAnswers.has(one))) {
    const isOpen = ["RegisterDeployment", "ChatRequest", "ChatMessage"].includes(name)
    if (schemas[name]!["type"] === "object" && !isOpen)
      expect(schemas[name], name).toMatchObject({ additionalProperties: false })
  }
})

const isSuccess = (status: string) => status.startsWith("2")

it("each status of an operation has a schema with exactly its codes; interfaces share their answers", () => {
  const [open, exact] = [true, false].map((is) =>
    Object.entries(schemas).filter(([name]) => name.endsWith("Error") && ["Error", "V1Error"].includes(name) === is),
  )
  expect(Object.keys(schemas).filter((name) => /Encoded|_\d/.test(name))).toEqual([])
  const codeOf = (schema: Json) => (schema["properties"] as Readonly<Record<string, Json>>)["code"]!
  for (const [name, schema] of open!) expect(codeOf(schema)["x-extensible-enum"], name).toBeDefined()
  for (const [name, schema] of exact!) expect(codeOf(schema)["enum"], name).toBeDefined()
  for (const { at, operation, path } of operations) {
    expect(operation.responses["default"], at).toBeDefined()
    const seen = new Map<unknown, string>()
    for (const [status, response] of Object.entries(operation.responses)) {
      if (isSuccess(status)) continue
      expect(Object.keys(response), `${at} ${status}`).toEqual(["$ref"])
      const shared = components.responses[String(response["$ref"]).split("/").at(-1)!]
      const [name] = refsOf((shared as { content: Json }).content) as [string]
      expect(name.startsWith("V1"), at).toBe(path.startsWith("/v1/"))
      expect(["Error", "V1Error"].includes(name), `${at} ${status}`).toBe(status === "default")
      // Clients that try one schema after the other find the right one.
      for (const code of (codeOf(schemas[name]!)["enum"] as ReadonlyArray<unknown> | undefined) ?? []) {
        expect(seen.get(code), `${at} ${status} ${code}`).toBeUndefined()
        seen.set(code, status)
      }
    }
  }
})

it("no status has another code: clients with the codes of their version would not read it", () => {
  const codes = new Map<string, Set<unknown>>()
  for (const { operation } of operations) {
    for (const [status, { $ref }] of Object.entries(operation.responses)) {
      if (isSuccess(status) || status === "default") continue
      const { content } = components.responses[String($ref).split("/").at(-1)!] as { content: Json }
      const { code } = schemas[refsOf(content)[0]!]!["properties"] as Readonly<Record<string, Json>>
      for (const one of code!["enum"] as ReadonlyArray<unknown>) {
        codes.set(status, (codes.get(status) ?? new Set()).add(one))
      }
    }
  }
  expect(Object.fromEntries([...codes].map(([status, all]) => [status, [...all].sort()]))).toEqual({
    400: ["invalid_request"],
    401: ["unauthorized"],
    403: ["forbidden", "ip_not_allowed"],
    404: ["not_found"],
    409: ["conflict", "limit_reached"],
    413: ["payload_too_large"],
    415: ["unsupported_media_type"],
    422: ["idempotency_key_reused", "unprocessable"],
    429: ["credits_exhausted", "too_many_requests"],
    500: ["internal_error"],
    503: ["unavailable"],
  })
})

it("refers to the webhooks, so that generators do not take them for operations of the service", () => {
  expect(Object.values(document.webhooks).map((one) => Object.keys(one))).toEqual(
    Object.keys(webhooks).map(() => ["$ref"]),
  )
  expect(Object.keys(components.pathItems)).toHaveLength(Object.keys(webhooks).length)
})

it("names the headers of answers", () => {
  expect(components.headers["retry-after"]).toMatchObject({ schema: { type: "integer" } })
  for (const { at, operation } of operations) {
    for (const [status, response] of Object.entries(operation.responses)) {
      const name = String(response["$ref"]).split("/").at(-1)!
      const { headers } = (isSuccess(status) ? response : components.responses[name]) as { headers: Json }
      const own = Object.keys(headers)
      expect(own, `${at} ${status}`).toContain("x-request-id")
      expect(own.includes("retry-after"), `${at} ${status}`).toBe(["429", "503"].includes(status))
      expect(own.includes("www-authenticate"), `${at} ${status}`).toBe(status === "401")
      const isRepeatable = operation.parameters.some((one) => one["name"] === "idempotency-key")
      expect(own.includes("idempotency-replayed"), `${at} ${status}`).toBe(status === "200" && isRepeatable)
    }
  }
})

it("integers have a format and true bounds", () => {
  const integers = everything.filter(([, { type }]) => [type].flat().includes("integer"))
  expect(integers.length).toBeGreaterThan(30)
  for (const [at, { format, maximum, minimum }] of integers) {
    expect(["int32", "int64"], at).toContain(format)
    expect(minimum, at).toBeTypeOf("number")
    expect(Math.abs(Number(minimum)), at).toBeLessThan(Number.MAX_SAFE_INTEGER)
    if (format === "int32") expect(maximum ?? 0, at).toBeLessThan(2 ** 31)
  }
})

it("states the rules of the service", () => {
  for (const { at, operation } of operations) {
    for (const { name, schema } of operation.parameters) {
      if (name === "cursor") expect(schema, at).toMatchObject({ pattern: expect.stringMatching(/26|25/) })
    }
  }
  expect(schemas["UpdateProject"]).toMatchObject({
    minProperties: 1,
    dependentRequired: { hostOwner: ["hostRepo"], hostRepo: ["hostOwner"] },
    properties: { subdomain: { type: ["string", "null"], pattern: expect.any(String) } },
  })
  expect(schemas["UpdateOrg"]).toMatchObject({ minProperties: 1 })
  expect(schemas["UpdateOrgLimits"]).toMatchObject({ minProperties: 1 })
  expect(schemas["UpdateWebhookEndpoint"]).toMatchObject({ minProperties: 2 })
  expect(schemas["UpdateKey"]).toMatchObject({ minProperties: 1 })
  const matches = (name: string, field: string, text: string) => {
    const { items, ...schema } = (schemas[name]!["properties"] as Readonly<Record<string, Json>>)[field]!
    return new RegExp(String((items as Json | undefined)?.["pattern"] ?? schema["pattern"]), "u").test(text)
  }
  for (const [name, field, good, bad] of [
    ["CreateOrgKey", "permissions", "models.*", "Models"],
    ["UpdateOrg", "owners", "gitlab:acme/web", "acme/web"],
    ["PutRepositoryLink", "hostOwner", "acme/web", "acme web"],
    ["PublishEvent", "type", "invoice.paid", "invoice.*"],
    ["CreateWebhookEndpoint", "event_types", "invoice.*", "*.paid"],
  ] as const) {
    expect([matches(name, field, good), matches(name, field, bad)], `${name}.${field}`).toEqual([true, false])
  }
  expect(schemas["CreateOrg"]).toMatchObject({ properties: { name: { minLength: 1, maxLength: 255 } } })
  expect(schemas["ChatRequest"]).toMatchObject({
    properties: { skillUrls: { maxItems: 20, items: { format: "uri", maxLength: 2048 } } },
  })
})

it("describes every event that endpoints receive: its headers, its body and an example", () => {
  expect(Object.keys(webhooks)).toEqual(["job.completed", "job.failed", "invoice.paid", ...serviceEventTypes])
  for (const [type, { post }] of Object.entries(webhooks)) {
    expect(post!.parameters.map(({ name }) => name)).toEqual(
      expect.arrayContaining(["webhook-id", "webhook-signature"]),
    )
    const media = post!.requestBody!.content["application/json"] as unknown as { schema: Json; example: Json }
    const body = schemas[String(media.schema["$ref"]).split("/").at(-1)!]!
    expect(media.example["event"]).toBe(type)
    expect(Object.keys(media.example)).toEqual(expect.arrayContaining([...(body["required"] as ReadonlyArray<string>)]))
  }
})

it("types the stream of the chat as its parts", () => {
  const { content } = paths["/api/svc/chat"]!["post"]!.responses["200"] as { content: Json }
  expect(Object.keys(content)).toEqual(["text/event-stream"])
  expect(refsOf(content)).toEqual(["ChatPart"])
  const { properties } = (content["text/event-stream"] as { schema: { properties: Readonly<Record<string, Json>> } })
    .schema
  expect(properties["data"]).toMatchObject({ type: "string", else: { contentMediaType: "application/json" } })
  expect(schemas["ChatPart"]).toMatchObject({ required: ["type"], properties: { delta: { type: "string" } } })
})

/** The fields and parameters of a document, with their paths. */
const fields = everything.filter(([at]) => /\/(properties|parameters)\/[^/]+$/.test(at))
/** What is said of a field: at the field, or at the schema that it refers to. */
const textOf = (node: Json) =>
  String(node["description"] ?? schemas[String(node["$ref"]).split("/").at(-1)!]?.["description"] ?? "")

it("every field and parameter has a description", () => {
  expect(fields.flatMap(([at, node]) => (/\w+ \w+/.test(textOf(node)) ? [] : [at]))).toEqual([])
})

it("each description stands in the schema of its field", () => {
  const defined = new Map(nodes(OpenApi.fromApi(Api.annotateMerge(OpenApi.annotations({ transform: (spec) => spec })))))
  // The known values of an open string come from its schema, too.
  const own = (text: unknown) => String(text).replace(/ Known values: .*$/, "")
  const texts = (node: Json): ReadonlyArray<unknown> => {
    const members = [node["schema"], node["allOf"], node["anyOf"]].flat() as ReadonlyArray<Json | undefined>
    return [node["description"], ...members.flatMap((one) => (one === undefined ? [] : texts(one)))]
  }
  // The streams of server-sent events are described by hand.
  const compared = fields.filter(([at, { $ref }]) => defined.has(at) && $ref === undefined && !/event-stream/.test(at))
  expect(compared.length).toBeGreaterThan(1_000)
  for (const [at, node] of compared) expect(texts(defined.get(at)!), at).toContain(own(node["description"]))
})

it("no two different things share a description", () => {
  const kinds = new Map<string, Map<string, string>>()
  for (const [at, node] of fields) {
    const { $ref, anyOf, format, type } = { ...node, ...(node["schema"] as Json) } as Json
    if ($ref !== undefined) continue
    const kind = [[type ?? (anyOf === undefined ? "any" : "object")].flat().filter((one) => one !== "null"), format]
    const key = `${node["name"] ?? at.split("/").at(-1)}: ${textOf(node)}`
    kinds.set(key, (kinds.get(key) ?? new Map()).set(JSON.stringify(kind), at))
  }
  expect([...kinds].flatMap(([key, found]) => (found.size > 1 ? [[key, ...found.values()]] : []))).toEqual([])

  const descriptions = (field: string, names: ReadonlyArray<string>) =>
    names.map((name) => textOf((schemas[name]!["properties"] as Readonly<Record<string, Json>>)[field]!))
  for (const [field, ...names] of [
    ...["projects", "keys", "endpoints", "schedules", "unfinishedJobs", "pendingDeliveries", "storedBytes"].map(
      (limit) => [limit, "OrgUsage", "OrgLimits", "UpdateOrgLimits"] as const,
    ),
    ["active", "JobSchedule", "WebhookEndpoint", "Alert"],
    ["workflow", "Job", "Deployment", "RepositoryLink"],
    ["name", "Org", "Project", "ApiKey", "GetEventType", "CatalogueType"],
    ["at", "UsageInterval", "AuditEntry", "JobLine", "NewJobLine"],
    ["since", "EndpointHealth", "ListJobs", "ListDeliveries", "RecoverDeliveries"],
    ["finished_at", "Job", "JobStep"],
    ["expiresAt", "ApiKey", "KeyToken", "WhoAmI"],
    ["id", "ApiKey", "Deployment", "AuditEntry", "DocsQuestion", "GetWebhookEndpoint"],
  ] as const) {
    expect(new Set(descriptions(field, names)).size, field).toBe(names.length)
  }
})

it("describes everything, with realistic examples", () => {
  for (const [at, node] of everything) expect(node["description"], at).not.toBe("Success")
  const text = JSON.stringify(document)
  expect(text).not.toContain("9007199254740991")
  expect(text).not.toMatch(/"example":"text"|"expiresAt":"20[012]\d/)
  for (const { at, operation } of operations) {
    const key = operation.parameters.find(({ name }) => name === "idempotency-key")
    if (key !== undefined) expect(JSON.stringify(key), at).not.toContain('"example')
  }
})

it("names each operation once, in a group of the document", () => {
  const all = [...operations.map(({ operation }) => operation), ...Object.values(webhooks).map((one) => one["post"]!)]
  const ids = all.map((one) => String(one["operationId"]))
  expect(new Set(ids).size).toBe(ids.length)
  for (const id of ids) expect(id).toMatch(/^[a-z]\w*\.[a-z]\w*$/)
  const tags = (document["tags"] as ReadonlyArray<Json>).map(({ name }) => name)
  expect(new Set(all.flatMap((one) => one["tags"] as ReadonlyArray<unknown>))).toEqual(new Set(tags))
})
