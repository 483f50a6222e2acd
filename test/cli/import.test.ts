import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { createHash } from "node:crypto"
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { parseJson } from "#src/domain/exactJson.ts"
import { blocks } from "../docs/pages.ts"
import { must } from "../http/operations.ts"
import { run, runCli } from "../support/cli.ts"
import { freshFolder } from "../support/databases.ts"
import { layer } from "../support/it.ts"
import { makeReceiver } from "../support/receiver.ts"
import { adminToken, embedded, guarded, TestServer } from "../support/server.ts"

/**
 * Promise (Moving to Gatehouse): `gatehouse import`, and the program of Come from Unkey, name what they cannot import,
 * and a repeat creates nothing twice.
 */

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

/** Answers of the other services' APIs, as their OpenAPI documents describe them, by path. */
const recorded = {
  svix: {
    "/api/v1/app/?limit=100": {
      data: [{ id: "app_1", uid: "customer-1", name: "Acme", throttleRate: 40, metadata: { plan: "pro" } }],
      iterator: "app_1",
      done: false,
    },
    "/api/v1/app/?limit=100&iterator=app_1": {
      data: [{ id: "app_2", uid: null, name: "Globex" }],
      iterator: null,
      done: true,
    },
    "/api/v1/app/app_1/endpoint/?limit=100": {
      data: [
        {
          id: "ep_1",
          uid: "main",
          url: "https://example.com/one",
          description: "Production",
          disabled: false,
          eventTypes: ["user_created", "Invoice.Paid", "not a type", "job.created", "key.created", "deployment.*"],
          channels: ["project_1"],
          rateLimit: 90,
          throttleRate: 50,
          version: 1,
          metadata: { tier: "gold" },
        },
        {
          id: "ep_2",
          url: "https://example.com/two",
          description: "",
          disabled: true,
          filterTypes: null,
          rateLimit: null,
        },
      ],
      iterator: null,
      done: true,
    },
    "/api/v1/app/app_2/endpoint/?limit=100": {
      data: [{ id: "ep_3", url: "http://10.0.0.1/", description: "", filterTypes: ["key.made"] }],
      iterator: null,
      done: true,
    },
    "/api/v1/app/app_1/endpoint/ep_1/secret/": { key: secret },
    "/api/v1/app/app_1/endpoint/ep_2/secret/": { key: "whsk_asymmetric" },
    "/api/v1/app/app_2/endpoint/ep_3/secret/": { key: secret },
    "/api/v1/app/app_1/endpoint/ep_1/headers/": { headers: { "x-team": "a", host: "b" }, sensitive: ["authorization"] },
    "/api/v1/app/app_1/endpoint/ep_2/headers/": { headers: {}, sensitive: [] },
    "/api/v1/app/app_2/endpoint/ep_3/headers/": { headers: {}, sensitive: [] },
  },
  convoy: {
    "/api/v1/projects/p1/subscriptions?perPage=100": {
      status: true,
      data: {
        content: [
          {
            uid: "s1",
            endpoint_metadata: { uid: "c1" },
            filter_config: {
              event_types: ["invoice.paid"],
              filter: { is_flattened: true, headers: {}, body: { "data.amount": 1 }, query: null, path: {} },
            },
          },
          {
            uid: "s3",
            endpoint_metadata: { uid: "c3" },
            filter_config: {
              event_types: ["*"],
              filter: {
                body: {
                  data: { amount: { $gte: 100, $lt: 500 } },
                  "data.kind": { $in: ["a", "b"] },
                  $or: [{ x: parseJson("9007199254740993") }, { y: { $exist: true } }],
                },
              },
            },
          },
          { uid: "s2", endpoint_metadata: { uid: "c1" }, filter_config: { event_types: ["user.made"], filter: {} } },
          { uid: "s4", endpoint_metadata: { uid: "c4" }, filter_config: { event_types: ["a.b", "c.d", "e.f"] } },
          { uid: "s5", endpoint_metadata: { uid: "c4" }, filter_config: { event_types: [] } },
        ],
        pagination: { has_next_page: false, next_page_cursor: "" },
      },
    },
    "/api/v1/projects/p1/subscriptions/s1/filters": {
      status: true,
      data: [
        {
          uid: "f1",
          event_type: "invoice.paid",
          enabled_at: "2026-01-01T00:00:00Z",
          headers: {},
          body: { "data.amount": 1 },
          raw_headers: {},
          raw_body: { "data.amount": 1 },
          raw_query: null,
        },
      ],
    },
    "/api/v1/projects/p1/subscriptions/s4/filters": {
      status: true,
      data: [
        { event_type: "a.b", enabled_at: "2026-01-01T00:00:00Z", raw_body: { x: 1 } },
        { event_type: "c.d", enabled_at: null, raw_body: {} },
        { event_type: "e.f", raw_body: {} },
        { event_type: "g.h", enabled_at: "2026-01-01T00:00:00Z", raw_body: {} },
      ],
    },
    "/api/v1/projects/p1/endpoints?perPage=100": {
      status: true,
      data: {
        content: [
          {
            uid: "c1",
            url: "https://example.com/convoy",
            name: "orders",
            description: "",
            owner_id: "customer_9",
            status: "active",
            rate_limit: 100,
            rate_limit_duration: 60,
            secrets: [
              { value: "old", expires_at: "2026-01-01T00:00:00Z" },
              { value: "current", expires_at: null },
            ],
            authentication: { type: "api_key", api_key: { header_name: "x-key", header_value: "v" } },
          },
          {
            uid: "c3",
            url: "https://example.com/filtered",
            secrets: [{ value: "current" }],
            authentication: {
              type: "oauth2",
              oauth2: {
                url: "https://login.example.com/token",
                client_id: "gatehouse",
                client_secret: "of-the-client",
                authentication_type: "shared_secret",
                scope: "write",
              },
            },
          },
        ],
        pagination: { has_next_page: true, next_page_cursor: "c1" },
      },
    },
    "/api/v1/projects/p1/endpoints?perPage=100&next_page_cursor=c1": {
      status: true,
      data: {
        content: [
          { uid: "c2", url: "https://example.com/paused", status: "paused", secrets: [] },
          { uid: "c4", url: "https://example.com/types", status: "active", secrets: [], rate_limit: 5000 },
        ],
      },
    },
  },
  outpost: {
    "/api/v1/tenants?limit=100": {
      models: [{ id: "t 1", destinations_count: 2, metadata: { name: "Initech" } }],
      pagination: { next: null },
    },
    "/api/v1/tenants/t%201/destinations": [
      {
        id: "des_1",
        type: "webhook",
        topics: ["user.created"],
        disabled_at: null,
        config: { url: "https://example.com/outpost", custom_headers: `{"x-api-key":"s"}` },
        credentials: { secret },
      },
      {
        id: "des_3",
        type: "webhook",
        topics: "*",
        config: { url: "https://example.com/three", custom_headers: `{"x-version":2}` },
        credentials: { secret },
      },
      { id: "des_2", type: "aws_sqs", topics: "*", disabled_at: null, config: { queue_url: "q" }, credentials: {} },
    ],
  },
  hookdeck: {
    "/2025-07-01/destinations?limit=100": {
      pagination: { limit: 100, next: null },
      count: 1,
      models: [
        {
          id: "des_9",
          name: "shop",
          description: null,
          disabled_at: null,
          config: {
            url: "https://example.com/hookdeck",
            rate_limit: 5,
            rate_limit_period: "second",
            auth_type: "OAUTH2",
          },
        },
      ],
    },
  },
} as const

type Line = { readonly source: string; readonly result: string; readonly org: string; readonly endpoint: string }
type Row = Line & { readonly lost: ReadonlyArray<string>; readonly secret: string | null }

/** A page of the keys of an API of Unkey, as its OpenAPI document describes them. */
const unkeyPage = (cursor: string | undefined, plaintext: string | undefined) =>
  cursor === undefined
    ? {
        meta: { requestId: "req_1" },
        data: [
          {
            ...{
              keyId: "key_0001",
              start: "acme_3Zs",
              enabled: true,
              name: "Production",
              createdAt: 1_700_000_000_000,
            },
            meta: { plan: "pro" },
            expires: Date.UTC(2100, 0),
            roles: ["editor"],
            permissions: ["documents.read", "Documents:Read"],
            credits: { remaining: 900, refill: { interval: "monthly", amount: 1000, refillDay: 15 } },
            identity: { id: "id_1", externalId: "user_1", meta: { team: 1 } },
            ratelimits: [
              { id: "rl_00000001", name: "requests", limit: 100, duration: 60_000, autoApply: true },
              { id: "rl_00000002", name: "tokens", limit: 9, duration: 500, autoApply: false },
            ],
            ...(plaintext === undefined ? {} : { plaintext }),
          },
        ],
        pagination: { cursor: "key_0002", hasMore: true },
      }
    : {
        meta: { requestId: "req_2" },
        data: [
          {
            ...{ keyId: "key_0002", start: "acm", enabled: true, createdAt: 1, credits: { remaining: null }, meta: {} },
            ...{ expires: null, identity: null, permissions: null, ratelimits: null, roles: null },
          },
          { keyId: "key_0003", start: "acme_xyz", enabled: true, createdAt: 1, expires: 1_700_000_000_000 },
        ],
        pagination: { hasMore: false },
      }

layer(TestServer.layer({ ...embedded, ...guarded }), { excludeTestServices: true })("gatehouse import", (it) => {
  /** Another service that answers with what was recorded, and a command that imports from it. */
  const other = Effect.fnUntraced(function* (
    name: keyof typeof recorded,
    service?: string,
    answers: Readonly<Record<string, unknown>> = recorded[name],
  ) {
    const { url } = yield* TestServer
    const api = yield* makeReceiver()
    let requests = 0
    api.behave(({ headers, path }) => {
      if (headers.authorization !== "Bearer of the other") return { status: 401 }
      // The first request of all is refused for now, and the response to the second breaks off.
      requests++
      if (requests === 1) return { status: 429 }
      if (requests === 2) return "close-in-body"
      return path in answers
        ? { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify(answers[path]) }
        : { status: 404 }
    })
    const env = {
      GATEHOUSE_URL: service ?? url,
      GATEHOUSE_TOKEN: adminToken,
      GATEHOUSE_IMPORT_TOKEN: "of the other",
    }
    return (...args: ReadonlyArray<string>) =>
      Effect.map(runCli(["import", name, "--from", api.url, "--json", ...args], { env }), (ended) => ({
        ...ended,
        rows: ended.out
          .split("\n")
          .filter((line) => line !== "")
          .map((line) => JSON.parse(line) as Row),
      }))
  })
  const endpointOf = Effect.fnUntraced(function* ({ endpoint: id, org }: Row) {
    const { send } = yield* TestServer
    return yield* must(send, "POST", "/v1/webhooks/get", { as: adminToken, headers: { "x-org-id": org }, json: { id } })
  })
  const orgs = Effect.gen(function* () {
    const { send } = yield* TestServer
    const { orgs } = yield* must(send, "GET", "/api/v0/orgs?limit=100", { as: adminToken })
    return (orgs as unknown as ReadonlyArray<{ readonly name: string }>).map(({ name }) => name)
  })

  it.effect(
    "svix: applications become orgs, endpoints keep their settings, and a repeat makes nothing twice",
    function* () {
      const cli = yield* other("svix")
      const before = yield* orgs
      const dry = yield* cli("--dry-run")
      expect(dry.rows.map(({ result }) => result)).toEqual(["would be imported", "would be imported", "refused"])
      expect(dry.err).toContain("as far as the limits of the orgs allow")
      expect(yield* orgs).toEqual(before)
      const { code, err, out, rows } = yield* cli()
      expect([code, rows.map(({ result, source }) => [source, result])]).toEqual([
        1,
        [
          ["main", "created"],
          ["ep_2", "created"],
          ["ep_3", "refused"],
        ],
      ])
      expect(err).toContain("Endpoints: 2 created, 0 updated, 1 refused.")
      expect(rows[0]!.lost).toEqual([
        "event types of the service's own: job.created, key.created, deployment.*",
        "event types: not a type",
        "headers: host",
        "the limit of the application, 40 a second: here it holds for each endpoint",
        "metadata of the application",
        "headers that are not shown: authorization",
      ])
      expect(rows[0]!.secret).toBeNull()
      expect(out).not.toContain(secret)
      expect(rows[1]!.secret).toMatch(/^whsec_/)
      expect(yield* endpointOf(rows[0]!)).toMatchObject({
        external_id: "main",
        url: "https://example.com/one",
        description: "Production",
        active: true,
        event_types: ["user_created", "Invoice.Paid"],
        channels: ["project_1"],
        headers: ["x-team"],
        max_per_second: 40,
        metadata: { tier: "gold", imported: { from: "svix", owner: "app_1", id: "ep_1" } },
        payload: "data",
        header_names: "svix",
      })
      expect(yield* endpointOf(rows[1]!)).toMatchObject({ external_id: "ep_2", active: false, event_types: null })
      // Nothing of Globex can exist here.
      const ofOwners = Effect.map(orgs, (all) => all.filter((name) => name === "Acme" || name === "Globex"))
      expect(yield* ofOwners).toEqual(["Acme"])
      const again = yield* cli()
      expect(again.rows.map(({ endpoint, org, result }) => [endpoint, org, result])).toEqual([
        [rows[0]!.endpoint, rows[0]!.org, "updated"],
        [rows[1]!.endpoint, rows[1]!.org, "updated"],
        ["", again.rows[2]!.org, "refused"],
      ])
      expect(yield* ofOwners).toEqual(["Acme"])
    },
  )

  // Seen failing: types, channels, headers and limits stayed as they were, and a header that was set by hand was lost.
  it.effect("a repeat takes away what the source no longer has, and leaves what somebody has set here", function* () {
    const { send } = yield* TestServer
    const of = "/api/v1/app/app_1/endpoint"
    const answers: Record<string, unknown> = { ...recorded.svix }
    const cli = yield* other("svix", undefined, answers)
    const [row] = (yield* cli()).rows as [Row]
    const as = { as: adminToken, headers: { "x-org-id": row.org } }
    yield* must(send, "POST", "/v1/webhooks/update", { ...as, json: { id: row.endpoint, ordered: true } })
    const [first, second] = recorded.svix[`${of}/?limit=100`].data
    const bare = { id: first.id, uid: first.uid, url: first.url, description: "" }
    answers[`${of}/?limit=100`] = { data: [bare, second], done: true }
    answers[`${of}/ep_1/headers/`] = { headers: {}, sensitive: ["authorization"] }
    answers["/api/v1/app/?limit=100"] = {
      ...recorded.svix["/api/v1/app/?limit=100"],
      data: [{ id: "app_1", name: "Acme" }],
    }
    yield* cli()
    expect(yield* endpointOf(row)).toMatchObject({
      ...{ event_types: null, channels: null, headers: null, max_per_second: null, ordered: true },
      metadata: { imported: { id: "ep_1" } },
    })
    const headers = { authorization: "Bearer by hand" }
    yield* must(send, "POST", "/v1/webhooks/update", { ...as, json: { id: row.endpoint, headers } })
    answers[`${of}/ep_1/headers/`] = { headers: { "x-team": "a" }, sensitive: ["authorization"] }
    yield* cli()
    expect(yield* endpointOf(row)).toMatchObject({ headers: ["authorization"] })
  })

  it.effect("svix: an org or an endpoint that was not imported is left alone, whatever its name", function* () {
    const { send } = yield* TestServer
    const make = (name: string) =>
      Effect.map(must(send, "POST", "/api/v0/orgs", { as: adminToken, json: { name } }), ({ orgId }) => String(orgId))
    const [namesake, named] = [yield* make("Acme"), yield* make("named")]
    const own = { url: "https://example.com/own", external_id: "main", signing_secret: secret }
    const as = (org: string) => ({ as: adminToken, headers: { "x-org-id": org } })
    for (const org of [namesake, named]) yield* must(send, "POST", "/v1/webhooks/create", { ...as(org), json: own })
    const cli = yield* other("svix")
    const { rows } = yield* cli()
    expect([namesake, named]).not.toContain(rows[0]!.org)
    // Seen failing: a dry run promised what the import then refused, also into an org that does not exist.
    const dry = (yield* cli("--into", named, "--dry-run")).rows
    expect(dry.map(({ lost, result }) => [result, lost[0]?.includes("exists that was not imported")])).toEqual([
      ["refused", true],
      ["would be imported", false],
      ["refused", false],
    ])
    const nowhere = yield* cli("--into", "nowhere", "--dry-run")
    expect([nowhere.code, nowhere.out]).toEqual([1, expect.stringContaining("There is no such org")])
    const into = (yield* cli("--into", named)).rows
    expect(into.map(({ org, result }) => [org, result])).toEqual([
      [named, "refused"],
      [named, "created"],
      [named, "refused"],
    ])
    expect(into[0]!.lost[0]).toContain("exists that was not imported")
    for (const org of [namesake, named]) {
      const found = yield* must(send, "POST", "/v1/webhooks/get", { ...as(org), json: { external_id: "main" } })
      expect(found["url"]).toBe(own.url)
    }
  })

  // Seen failing: the command printed nothing, and left an org without endpoints, which a repeat could not find.
  it.effect(
    "svix: a fault in the middle shows what is imported, with its new secrets, and leaves no empty org",
    function* () {
      const service = yield* makeReceiver()
      let [orgCount, endpointCount] = [0, 0]
      const json = (status: number, body: object) => ({
        status,
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      })
      service.behave(({ method, path }) => {
        if (path.startsWith("/v1/webhooks/create"))
          return endpointCount++ === 0
            ? json(200, { success: true, webhook_endpoint_id: "e1", message: "m", signing_secret: secret })
            : json(403, { success: false, message: "No more of them.", code: "forbidden" })
        if (method === "DELETE") return json(200, { deleted: true })
        if (method === "GET") return json(200, { orgs: [], nextCursor: null })
        return json(200, { orgId: `o${++orgCount}`, name: "n", createdAt: "2026-11-20T17:00:00.000Z" })
      })
      const cli = yield* other("svix", service.url)
      const { code, rows } = yield* cli()
      expect(code).toBe(1)
      const made = { source: "main", result: "created", endpoint: "e1", secret }
      expect(rows).toMatchObject([{ message: "No more of them." }, made])
      const deleted = service.received.filter(({ method }) => method === "DELETE")
      expect(deleted.map(({ path }) => path)).toEqual(["/api/v0/orgs/o2"])
    },
  )

  it.effect("a list whose cursors go round is left", function* () {
    const { url } = yield* TestServer
    const api = yield* makeReceiver()
    const next: Readonly<Record<string, string>> = { "": "a", "&next=a": "b", "&next=b": "a" }
    api.behave(({ path }) => ({
      status: 200,
      body: JSON.stringify({ models: [], pagination: { next: next[path.split("limit=100")[1]!] ?? "a" } }),
    }))
    const env = { GATEHOUSE_URL: url, GATEHOUSE_TOKEN: adminToken, GATEHOUSE_IMPORT_TOKEN: "t" }
    const ended = yield* runCli(["import", "hookdeck", "--from", api.url], { env })
    expect(ended.code).toBe(0)
    expect(api.received).toHaveLength(3)
  })

  it.effect("convoy: subscriptions become event types, and owners channels of one org", function* () {
    const { send } = yield* TestServer
    const cli = yield* other("convoy")
    expect((yield* cli()).err).toContain("--project")
    const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { as: adminToken, json: { name: "platform" } })
    const { rows } = yield* cli("--project", "p1", "--into", String(orgId))
    expect(rows.map(({ result }) => result)).toEqual(["created", "created", "created", "created"])
    expect(yield* endpointOf(rows[0]!)).toMatchObject({
      external_id: "c1",
      description: "orders",
      event_types: ["invoice.paid", "user.made"],
      channels: ["customer_9"],
      max_per_second: 1,
      headers: ["x-key"],
      header_names: "webhook",
    })
    expect(rows[0]!.lost).toContain("the filter of a subscription")
    expect(rows[0]!.secret).toBeNull()
    expect(rows[1]!.lost).toEqual(["x-convoy-signature: the receiver reads x-webhook-signature"])
    expect(yield* endpointOf(rows[1]!)).toMatchObject({
      external_id: "c3",
      event_types: null,
      filter: {
        "data.amount": { gte: 100, lt: 500 },
        "data.kind": ["a", "b"],
        any: [{ x: expect.anything() }, { y: { exists: true } }],
      },
      auth: { type: "oauth2", token_url: "https://login.example.com/token", client_id: "gatehouse", scope: "write" },
    })
    const { endpoint: id, org } = rows[1]!
    const { text } = yield* send("POST", "/v1/webhooks/get", {
      as: adminToken,
      headers: { "x-org-id": org },
      json: { id },
    })
    expect(text).toContain('"any":[{"x":9007199254740993},')
    expect(yield* endpointOf(rows[2]!)).toMatchObject({ external_id: "c2", active: false, channels: ["p1"] })
    expect(rows[2]!.secret).toMatch(/^whsec_/)
    expect(rows[0]!.lost.join()).not.toContain("single event types")
    expect(rows[3]!.lost).toContain("what is set for single event types: a.b, c.d, g.h")
    expect(rows[3]!.lost).toContain("the limit of 5000 in 1 s is 1000 a second here")
    expect(yield* endpointOf(rows[3]!)).toMatchObject({ active: true, event_types: null, max_per_second: 1000 })
  })

  it.effect("outpost and hookdeck: webhook destinations are imported, and what cannot be is named", function* () {
    const first = yield* (yield* other("outpost"))()
    expect(first.rows.map(({ result }) => result)).toEqual(["created", "created", "refused"])
    expect(first.rows[2]!.lost[0]).toContain("aws_sqs")
    expect(first.rows[1]!.lost[0]).toBe("custom_headers: they are no object of texts")
    expect(yield* endpointOf(first.rows[0]!)).toMatchObject({ event_types: ["user.created"], headers: ["x-api-key"] })
    const second = yield* (yield* other("hookdeck"))()
    expect(second.rows.map(({ result }) => result)).toEqual(["created"])
    expect(yield* endpointOf(second.rows[0]!)).toMatchObject({ description: "shop", max_per_second: 5 })
    expect(second.rows[0]!.lost).toContain("credentials of the kind OAUTH2")
  })

  it.effect("a wrong token, an address that is not the service's, and no token are told in words", function* () {
    const { url } = yield* TestServer
    const env = { GATEHOUSE_URL: url, GATEHOUSE_TOKEN: adminToken }
    const api = yield* makeReceiver()
    const run = (token: string) =>
      runCli(["import", "svix", "--from", api.url], { env: { ...env, GATEHOUSE_IMPORT_TOKEN: token } })
    api.behave({ status: 401 })
    expect((yield* run("wrong")).err).toContain("answered with status 401. Check GATEHOUSE_IMPORT_TOKEN")
    api.behave({ status: 200, body: "<html>" })
    expect((yield* run("t")).err).toContain("did not answer with JSON. Check --from")
    api.behave({ status: 200, body: `{"data":1}` })
    expect((yield* run("t")).err).toContain("has another form than expected")
    expect((yield* runCli(["import", "svix", "--from", api.url], { env })).err).toContain("Set GATEHOUSE_IMPORT_TOKEN")
  })

  it.effect("unkey: the program of the page prints keys that are imported with their settings", function* () {
    const { send, url } = yield* TestServer
    const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { as: adminToken, json: { name: "from unkey" } })
    const role = { permissions: ["documents.write"] }
    yield* must(send, "PUT", `/api/v0/orgs/${orgId}/roles/editor`, { as: adminToken, json: role })
    const [first, second] = ["acme_3ZsVn8pFqRkT6wXy", "acme_7HdLm2bNcJgK9uPv"]
    const hash = createHash("sha256").update(second).digest("base64")
    const api = yield* makeReceiver()
    let mayDecrypt = true
    api.behave(({ body, headers, path }) => {
      const { cursor, decrypt } = JSON.parse(body.toString()) as { cursor?: string; decrypt: boolean }
      const json = (status: number, value: object) => ({ status, body: JSON.stringify(value) })
      if (headers.authorization !== "Bearer of the other" || path !== "/v2/apis.listKeys") {
        return json(401, { meta: {}, error: { detail: "You are not allowed", status: 401 } })
      }
      if (decrypt && !mayDecrypt) return json(403, { meta: {}, error: { detail: "No decrypt_key", status: 403 } })
      return json(200, unkeyPage(cursor, decrypt ? first : undefined))
    })
    const folder = yield* freshFolder("empty")
    const program = blocks.find(({ language, page }) => language === "js" && page === "docs/migrate-from/unkey.md")!
    writeFileSync(join(folder, "unkey.mjs"), program.text)
    const print = (token = "of the other") =>
      run(process.execPath, ["unkey.mjs", "api_1", "", api.url], {
        cwd: folder,
        env: { GATEHOUSE_IMPORT_TOKEN: token },
      })
    expect((yield* print("none")).err).toContain("You are not allowed")
    mayDecrypt = false
    expect((yield* print()).err).toMatch(/^Unkey decrypts no key[^]*key_0001: not imported: no hash/)
    mayDecrypt = true

    const named = (n: number) => `key_000${n}: `
    const printed = yield* print()
    expect(printed.err.trim().split("\n")).toEqual([
      `${named(1)}the rate limit tokens`,
      `${named(1)}the metadata of its identity`,
      `${named(1)}the day of the refill: it is the 1st`,
      `${named(1)}permissions: Documents:Read`,
      `${named(2)}not imported: no hash`,
      `${named(3)}not imported: no hash`,
      `${named(3)}not imported: expired`,
    ])
    const env = { GATEHOUSE_URL: url, GATEHOUSE_TOKEN: adminToken }
    const file = (text: string) => {
      writeFileSync(join(folder, "keys.json"), text)
      return runCli(["keys", "import", join(folder, "keys.json"), "--org", orgId!], { env })
    }
    expect((yield* file(printed.out)).out).toContain("1 key is imported, 0 exist already.")
    const validate = (key: string) =>
      must(send, "POST", "/api/v0/keys/validate", { as: adminToken, json: { key, cost: 0, details: true } })
    expect(yield* validate(first)).toMatchObject({
      name: "Production",
      externalId: "user_1",
      metadata: { plan: "pro" },
      credits: 900,
      permissions: ["documents.read", "documents.write"],
      expiresAt: "2100-01-01T00:00:00.000Z",
    })
    const { keys } = yield* must(send, "GET", `/api/v0/orgs/${orgId}/keys`, { as: adminToken })
    expect(keys).toMatchObject([
      {
        name: "Production",
        prefix: "acme_3Zs",
        roles: ["editor"],
        rateLimit: { limit: 100, window: 60 },
        credits: { remaining: 900, refill: { amount: 1000, every: "month" } },
      },
    ])

    // Keys that Unkey does not decrypt: their hashes are in a file, and the others are decrypted.
    writeFileSync(join(folder, "hashes.json"), JSON.stringify({ key_0002: hash }))
    const hashed = yield* print()
    expect((yield* file(hashed.out)).out).toContain("1 key is imported, 1 exists already.")
    expect(yield* validate(second)).toMatchObject({ name: "key_0002", permissions: [] })
    expect((yield* file(hashed.out)).out).toContain("0 keys are imported, 2 exist already.")
  })
})
