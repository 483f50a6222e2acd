import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { connect } from "node:net"
import { OpenApi } from "effect/http-api"
import { gzipSync } from "node:zlib"
import { Api } from "#src/http/api/Api.ts"
import { layer } from "../../support/it.ts"
import { TestServer } from "../../support/server.ts"
import type { Send, WireAnswer } from "../../support/wire.ts"
import {
  bodyOf,
  faultOfError,
  keysOf,
  must,
  type Operation,
  type OperationName,
  operations,
  pathOf,
} from "../operations.ts"

/** Promise (Nothing secret in logs) */

const json = { "content-type": "application/json" }
const MiB = 1024 * 1024

const all = Object.entries(operations) as ReadonlyArray<readonly [OperationName, Operation]>
const withBody = all.filter(([, { request }]) => request !== undefined)

/** Resources to name in paths and bodies. */
const things = Effect.fnUntraced(function* (send: Send) {
  const project = yield* must(send, "POST", "/api/v0/projects", { json: { name: "docs" } })
  const key = yield* must(send, "POST", "/api/v0/keys", { json: { name: "ci", projectId: project["projectId"] } })
  return { orgId: project["orgId"]!, projectId: project["projectId"]!, key: key["key"]!, id: key["id"]! }
})

/** A key can be rotated once, so each rotation gets a new key. */
const idsFor = (name: OperationName, send: Send, ids: Effect.Success<ReturnType<typeof things>>) =>
  name === "rotateKey" ? things(send) : Effect.succeed(ids)

const expectError = (answer: WireAnswer, status: number, context = "") => {
  expect(answer.status, `${context} ${answer.text.slice(0, 200)}`).toBe(status)
  expect(faultOfError(answer), context).toBeUndefined()
  return (answer.json as { error: string }).error
}

/** Writes bytes to the server unchanged; returns everything that comes back. */
const raw = (url: string, bytes: string) =>
  Effect.callback<string>((resume) => {
    const { hostname, port } = new URL(url)
    let answer = ""
    const socket = connect(Number(port), hostname, () => socket.write(bytes))
    socket.on("data", (chunk) => (answer += chunk.toString()))
    socket.on("close", () => resume(Effect.succeed(answer)))
    socket.on("error", () => resume(Effect.succeed(answer)))
  })

layer(TestServer.layer(), { excludeTestServices: true })("conventions", (it) => {
  it.effect("answers have exactly the documented fields", function* () {
    const { send } = yield* TestServer
    const ids = yield* things(send)
    const project =
      "createdAt,currentDeploymentId,defaultBranch,hostOwner,hostRepo,name,orgId,projectId,subdomain,updatedAt"
    const record =
      "allowedIps,createdAt,credits,enabled,expiresAt,externalId,id,imported,lastUsedAt,leakedAt,metadata,name,permissions," +
      "prefix,projectId,rateLimit,replacedBy,roles"
    const fields: Partial<Record<OperationName, string>> = {
      createProjectKey: "id,key,name,prefix",
      createOrgKey: "id,key,name,prefix",
      listKeys: "keys,nextCursor",
      deleteKey: "deleted",
      rotateKey: "id,key,name,prefix",
      updateKey: record,
      getKey: record,
      keyUsage: "usage",
      orgUsage: "usage",
      listAudit: "entries,nextCursor",
      validateKey: "keyId,orgId,projectId",
      createOrg: "createdAt,name,orgId",
      listOrgs: "nextCursor,orgs",
      getOrg: "createdAt,keyPrefix,limits,name,orgId,owners,retentionDays,strictEvents,used",
      updateOrg: "createdAt,keyPrefix,limits,name,orgId,owners,retentionDays,strictEvents,used",
      createProject: project,
      listProjects: "nextCursor,projects",
      getProject: project,
      updateProject: project,
      listDeployments: "deployments,nextCursor",
    }
    for (const [name, operation] of all) {
      if (name === "register") continue
      const id = (yield* things(send)).id
      const body = bodyOf(name, ids)
      const answer = yield* send(operation.method, pathOf(operation, { ...ids, id }), { json: body })
      expect(answer.status, `${name} ${answer.text}`).toBe(200)
      expect(answer.headers["content-type"], name).toBe("application/json")
      expect(String(keysOf(answer.json)), name).toBe(fields[name])
      const [list] = Object.values(answer.json as object)
      if (name === "listKeys") expect(String(keysOf(list[0]))).toBe(record)
      if (name === "listAudit")
        expect(String(keysOf(list[0]))).toBe("action,actor,at,details,id,person,requestId,target")
      if (name === "listOrgs") expect(String(keysOf(list[0]))).toBe("createdAt,name,orgId")
      if (name === "listProjects") expect(String(keysOf(list[0]))).toBe(project)
    }
  })

  it.effect("times are ISO 8601 in UTC with milliseconds, ids are ULIDs, and empty fields are null", function* () {
    const { send } = yield* TestServer
    const { projectId, orgId, createdAt, updatedAt, name, ...rest } = yield* must(send, "POST", "/api/v0/projects", {
      json: { name: " docs \u{1f4da} " },
    })
    for (const time of [createdAt, updatedAt]) expect(time).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
    for (const id of [projectId, orgId]) expect(id).toMatch(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/)
    expect(name).toBe(" docs \u{1f4da} ")
    expect(Object.values(rest)).toEqual([null, null, null, null, null])
  })

  for (const [name, operation] of withBody) {
    it.effect(`${operation.method} ${operation.path}: refuses invalid bodies`, function* () {
      const { send } = yield* TestServer
      const ids = yield* things(send)
      const ask = (options: Parameters<Send>[2]) =>
        Effect.flatMap(idsFor(name, send, ids), (there) => send(operation.method, pathOf(operation, there), options))
      // Register-deployment checks its credential first.
      const refusal = name === "register" ? 401 : 400
      for (const body of [
        "{",
        "",
        "{'name':1}",
        "[1,]",
        "NaN",
        "\u0000",
        "{}{}",
        '{"name":"a"',
        '"\\ud800',
        "\ufffe{}",
      ]) {
        expectError(yield* ask({ body, headers: json }), refusal, `${name} ${body}`)
      }
      if (name === "register") return
      for (const body of ["null", "[]", '"text"', "1", "true", "1e999"]) {
        expect(expectError(yield* ask({ body, headers: json }), 400, body)).toMatch(
          /must be a JSON object(?:: send \{.*\})?\.$/,
        )
      }
      const valid = JSON.stringify(bodyOf(name, ids))
      for (const member of Object.keys(JSON.parse(valid) as object)) {
        const body = `{${JSON.stringify(member)}:0,${valid.slice(1)}`
        expect(expectError(yield* ask({ body, headers: json }), 400, body)).toContain("twice. Send it once.")
      }
      expectError(yield* ask({}), 400)
      for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/xml", "x", ";"]) {
        expectError(yield* ask({ body: "{}", headers: { "content-type": type } }), 415, type)
      }
      expectError(yield* ask({ body: "--x--", headers: { "content-type": "multipart/form-data; boundary=x" } }), 415)
      const compressed = gzipSync(JSON.stringify(bodyOf(name, ids)))
      expectError(yield* ask({ body: compressed, headers: { ...json, "content-encoding": "gzip" } }), 400)

      const levels = name === "validateKey" ? 100 : 10_000
      const deep = (open: string, close: string) => `${open.repeat(levels)}1${close.repeat(levels)}`
      for (const value of [deep("[", "]"), deep('{"a":', "}")]) {
        const body = `{"deep":${value},${JSON.stringify(bodyOf(name, ids)).slice(1).replace(/^}/, '"a":1}')}`
        expect(expectError(yield* ask({ body, headers: json }), 400)).toMatch(
          /^(deep is not a field of this operation|The request body has more than [\d,]+ JSON values\. Send fewer\.)/,
        )
        expectError(yield* ask({ body: value, headers: json }), 400)
      }
    })

    it.effect(
      `${operation.method} ${operation.path}: reads up to its limit, and answers one byte more with 413`,
      function* () {
        const { send } = yield* TestServer
        const ids = yield* things(send)
        const start = JSON.stringify(bodyOf(name, ids)).slice(0, -1)
        const ofSize = (size: number) => `${start}${" ".repeat(size - start.length - 1)}}`
        const ask = (body: string, headers: Record<string, string> = json) =>
          Effect.flatMap(idsFor(name, send, ids), (there) =>
            send(operation.method, pathOf(operation, there), { body, headers }),
          )
        const limit = name === "validateKey" ? 4_096 : name === "register" ? 1_024 : MiB
        expect((yield* ask(ofSize(limit))).status).toBe(name === "register" ? 401 : 200)
        const sentence = { [MiB]: "1 MiB", 4_096: "4 KiB", 1_024: "1 KiB" }[limit]
        expect(expectError(yield* ask(ofSize(limit + 1)), 413)).toBe(
          `The request body is larger than the limit of ${sentence}. Send a smaller one.`,
        )
        // Without a length to go by, the bytes are counted as they come.
        const chunked = { ...json, "transfer-encoding": "chunked" }
        expect((yield* ask(ofSize(limit), chunked)).status).toBe(name === "register" ? 401 : 200)
        // Register-deployment checks its credential before it reads a body without a length.
        expectError(yield* ask(ofSize(limit + 1), chunked), name === "register" ? 401 : 413)
        expectError(yield* ask(ofSize(4 * MiB)), 413)
      },
    )
  }

  it.effect("an error names the field and its fault, and never repeats the value", function* () {
    const { send } = yield* TestServer
    const { projectId, orgId } = yield* things(send)
    const project = `/api/v0/projects/${projectId}`
    const long = "n".repeat(256)
    const cases: ReadonlyArray<readonly [string, string, unknown, string]> = [
      ["POST", "/api/v0/projects", {}, "name is required."],
      ["POST", "/api/v0/projects", { name: "" }, "name must be at least 1 character."],
      ["POST", "/api/v0/projects", { name: null }, "name must be a string."],
      ["POST", "/api/v0/projects", { name: ["a"] }, "name must be a string."],
      // Seen failing when names of any length were accepted.
      ["POST", "/api/v0/projects", { name: long }, "name must be at most 255 characters."],
      ["PATCH", project, { name: long }, "name must be at most 255 characters."],
      ["POST", "/api/v0/keys", { name: long, projectId }, "name must be at most 255 characters."],
      ["POST", `/api/v0/orgs/${orgId}/keys`, { name: long }, "name must be at most 255 characters."],
      ["POST", "/api/v0/orgs", { name: long }, "name must be at most 255 characters."],
      ["POST", "/api/v0/projects", { name: "a", orgId: null }, "orgId must be a string."],
      ["POST", "/api/v0/projects", { name: "a", orgId: "" }, "orgId must be at least 1 character."],
      ["POST", "/api/v0/keys", { name: "a" }, "projectId is required."],
      ["POST", "/api/v0/keys", { name: "a", projectId: 7 }, "projectId must be a string."],
      ["POST", "/api/v0/keys/validate", { key: "" }, "key must be at least 1 character."],
      ["PATCH", project, { defaultBranch: 1 }, "defaultBranch must be a string or null."],
      ["PATCH", project, { name: null }, "name must be a string."],
      [
        "PATCH",
        project,
        { subdomain: "Secret_1" },
        "subdomain must be a DNS label: 1 to 63 lower-case letters, digits or inner hyphens.",
      ],
      ["GET", "/api/v0/projects?limit=0", undefined, "limit must be a whole number from 1 to 100."],
      ["GET", "/api/v0/projects?limit=101", undefined, "limit must be a whole number from 1 to 100."],
      ["GET", "/api/v0/projects?cursor=x", undefined, "cursor must be the cursor of an earlier answer."],
      // Seen failing with "must be a string", although each of them was one.
      ["GET", "/api/v0/projects?limit=1&limit=2", undefined, "limit was sent more than once."],
      ["GET", "/api/v0/orgs?limit=1&limit=1", undefined, "limit was sent more than once."],
      ["GET", "/api/v0/orgs?cursor=x&cursor=x", undefined, "cursor was sent more than once."],
      ["GET", "/api/v0/projects?orgId=a&orgId=b&limit=5", undefined, "orgId was sent more than once."],
      // Seen failing with "permission was sent more than once".
      [
        "GET",
        `/api/v0/keys/authorize?${Array.from({ length: 21 }, (_, n) => `permission=p${n}`).join("&")}`,
        undefined,
        "permission must be a list of 1 to 20 permissions.",
      ],
    ]
    for (const [method, path, body, sentence] of cases) {
      expect(expectError(yield* send(method, path, { json: body }), 400, path)).toBe(sentence)
    }
    expect((yield* send("POST", "/api/v0/orgs", { json: { name: long.slice(1) } })).status).toBe(200)
    for (const limit of ["", "x", "1.5", "-1", "1e99", "99999999999999999999", "NaN", "%", "%00"]) {
      const answer = yield* send("GET", `/api/v0/projects?limit=${limit}`)
      expect(expectError(answer, 400, limit)).toMatch(/^limit must be /)
    }
    const past = { name: "a", expiresAt: "2020-01-01T00:00:00.000Z" }
    const sentence = expectError(yield* send("POST", `/api/v0/orgs/${orgId}/keys`, { json: past }), 400)
    expect(sentence).toBe("expiresAt must be a time in the future.")
    const times = [
      "soon",
      "",
      "2027-01-01",
      "2027-01-01T00:00:00",
      "2027-02-30T00:00:00Z",
      "2027-13-01T00:00:00Z",
      null,
    ]
    for (const expiresAt of [...times, 1_900_000_000, {}]) {
      const answer = yield* send("POST", `/api/v0/orgs/${orgId}/keys`, { json: { name: "a", expiresAt } })
      expect(expectError(answer, 400, String(expiresAt))).toMatch(/^expiresAt must be /)
    }
  })

  it.effect("an unknown field is a 400 that names it and the nearest known one, and changes nothing", function* () {
    const { send } = yield* TestServer
    const ids = yield* things(send)
    for (const [name, operation] of withBody) {
      const body = { ...bodyOf(name, ids), unknown_field: 1 }
      const answer = yield* send(operation.method, pathOf(operation, ids), { json: body })
      // Register-deployment checks its credential first, and ignores additional fields of the CI.
      if (name === "register") expectError(answer, 401)
      else expect(expectError(answer, 400, name)).toMatch(/^unknown_field is not a field of this operation \(the/)
    }
    const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" } })
    const key = `/api/v0/orgs/${orgId}/keys`
    const cases: ReadonlyArray<readonly [string, string, object, string]> = [
      // Seen failing when the key was created, and never expired.
      [
        "POST",
        key,
        { name: "a", expires_at: "2020-01-01" },
        "expires_at is not a field of this operation (did you mean expiresAt?).",
      ],
      ["POST", key, { Name: "a" }, "Name is not a field of this operation (did you mean name?)."],
      [
        "POST",
        key,
        { name: "a", rateLimit: { limit: 1, windows: 1 } },
        "rateLimit.windows is not a field of this operation (did you mean window?).",
      ],
      [
        "PATCH",
        `/api/v0/orgs/${ids.orgId}`,
        { limits: { key: 1 } },
        "limits.key is not a field of this operation (did you mean keys?).",
      ],
      [
        "POST",
        "/api/v0/keys/validate",
        { key: ids.key, keys: 1 },
        "keys is not a field of this operation (did you mean key?).",
      ],
      [
        "POST",
        key,
        { name: "a", "<b>": 1 },
        "A field with an unusual name is not a field of this operation (the nearest is name).",
      ],
    ]
    for (const [method, path, body, sentence] of cases) {
      expect(expectError(yield* send(method, path, { json: body }), 400, path)).toBe(sentence)
    }
    const many = Object.fromEntries(Array.from({ length: 900 }, (_, at) => [`f${at}`, at]))
    const sentence = expectError(yield* send("POST", key, { json: { name: "a", ...many } }), 400)
    expect(sentence.split("; ").length).toBe(3)
    expect((yield* must(send, "GET", key))["keys"]).toEqual([])
  })

  // Seen failing: each of these was answered without a word of the remedy.
  it.effect("common mistakes get an answer that names the remedy", function* () {
    const { send } = yield* TestServer
    const { orgId } = yield* must(send, "POST", "/api/v0/orgs", { json: { name: "Acme" } })
    const headers = { "x-org-id": orgId! }
    const keys = `/api/v0/orgs/${orgId}/keys`
    const cases: ReadonlyArray<
      readonly [method: string, path: string, json: object | undefined, says: string, headers?: object]
    > = [
      [
        "POST",
        "/v1/jobs/create",
        { workflw: "w" },
        "workflw is not a field of this operation (did you mean workflow?).",
        headers,
      ],
      [
        "POST",
        keys,
        { name: "a", rateLimit: { limit: 5, duration: 60 } },
        "rateLimit.duration is not a field of this operation (use window, in seconds).",
      ],
      [
        "GET",
        "/api/v0/projects?page=2",
        undefined,
        "page is not a field of this operation (lists use cursor: send the next one, which the page before has).",
      ],
      ["GET", "/api/v0/projects/", undefined, "There is no operation at this path. Leave out the slash at its end."],
      ["POST", "/v1/jobs/create/", {}, "There is no operation at this path. Leave out the slash at its end."],
      ["POST", "/api/v0/keys/validate", undefined, 'The request body must be a JSON object: send {"key":"svc_'],
      [
        "POST",
        "/v1/schedules/create",
        { workflow: "w", cron: "@never" },
        "cron must be five or six fields, or one of @yearly, @annually,",
        headers,
      ],
      [
        "POST",
        keys,
        { name: "a", expiresAt: 1_732_412_345 },
        "expiresAt must be an ISO 8601 time with a zone, as in 2026-11-20T17:00:00.000Z; a number is not one.",
      ],
      ["POST", "/v1/jobs/create", { workflow: "w", run_at: 1 }, "run_at must be an ISO 8601 time with a zone", headers],
      [
        "POST",
        "/v1/jobs/list",
        {},
        "There is no such org: x-org-id takes the id of an org, not its name.",
        { "x-org-id": "Acme" },
      ],
      ["POST", "/v1/keys", {}, "There is no operation at this path. Did you mean POST /api/v0/keys?"],
      ["POST", "/api/v0/jobs/create", {}, "There is no operation at this path. Did you mean POST /v1/jobs/create?"],
      ["GET", "/API/v0/orgs", undefined, "There is no operation at this path. Did you mean GET /api/v0/orgs?"],
      ["POST", "/v1/jobs/cancle", {}, "There is no operation at this path. Did you mean POST /v1/jobs/cancel?"],
      ["GET", "/v1/workflows", undefined, "There are /v1/workflows/set, /v1/workflows/get, /v1/workflows/list,"],
      ["POST", "/v1/webhooks/public-key", { x: 1 }, "x is not a field of this operation, which has none.", headers],
    ]
    for (const [method, path, json, says, headers = {}] of cases) {
      const answer = yield* send(method, path, {
        headers: headers as Record<string, string>,
        ...(json === undefined ? {} : { json }),
      })
      const { error, message } = answer.json as { readonly error?: string; readonly message?: string }
      expect([answer.status >= 400 && answer.status < 500, error ?? message], path).toEqual([
        true,
        expect.stringContaining(says),
      ])
    }
    for (const [body, place] of [
      ['{"workflow":\n "w",}', ": see line 2, column 6"],
      ["{workflow}", ": see line 1, column 2"],
      ['{"workflow": "w"', ": see line 1, column 17"],
      ["nope (line 1 column 9)", ""],
    ] as const) {
      const answer = yield* send("POST", "/v1/jobs/create", { body, headers: { ...headers, ...json } })
      expect(answer.json).toMatchObject({
        code: "invalid_request",
        message: `The request body is not valid JSON${place}.`,
      })
    }
    for (const cron of ["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "@Midnight"]) {
      expect(
        (yield* send("POST", "/v1/schedules/create", { json: { workflow: "w", cron }, headers })).status,
        cron,
      ).toBe(200)
    }
    const browser = yield* send("GET", "/", { headers: { accept: "text/html,*/*" } })
    expect([browser.status, browser.headers["location"]]).toEqual([303, "/console"])
    expect((yield* send("GET", "/")).status).toBe(404)
  })

  it.effect("a query parameter that an operation does not have is a 400 that names it", function* () {
    const { send } = yield* TestServer
    const ids = yield* things(send)
    for (const [name, operation] of all) {
      const request = operation.request === undefined ? {} : { json: bodyOf(name, ids) }
      const answer = yield* send(operation.method, `${pathOf(operation, ids)}?limt=5`, request)
      // Its credential comes first; whatever else CI sends is ignored.
      if (name === "register") expectError(answer, 401)
      else
        expect(expectError(answer, 400, name)).toMatch(
          /^limt is not a (field of this operation \((?:the nearest is \w+|did you mean \w+\?)\)|query parameter of this operation, which has none)\.$/,
        )
    }
    const listed = yield* send("GET", "/api/v0/orgs?limt=5&limit=5&cursr=x")
    expect(expectError(listed, 400)).toBe(
      "limt is not a field of this operation (did you mean limit?); cursr is not a field of this operation (did you mean cursor?).",
    )
    // Balancers add what they like.
    expect((yield* send("GET", "/healthz?from=balancer")).status).toBe(200)
  })

  it.effect("a body is UTF-8: any other charset is a 415", function* () {
    const { send } = yield* TestServer
    const ids = yield* things(send)
    for (const [name, operation] of withBody) {
      if (name === "register") continue
      const body = JSON.stringify(bodyOf(name, ids))
      for (const charset of ["utf-16", "latin1", "iso-8859-1", "us-ascii", '"utf-16le"', "", "utf-8x"]) {
        const headers = { "content-type": `application/json; charset=${charset}` }
        expectError(yield* send(operation.method, pathOf(operation, ids), { body, headers }), 415, charset)
      }
    }
    for (const charset of ["charset=utf-8", "charset=UTF-8", 'charset="utf-8"', "Charset = utf8", "profile=x"]) {
      const headers = { "content-type": `application/json; ${charset}` }
      const answer = yield* send("POST", "/api/v0/orgs", { body: '{"name":"\u00e9"}', headers })
      expect([answer.status, (answer.json as { name?: string }).name], charset).toEqual([200, "\u00e9"])
    }
  })

  // Seen failing while each wrong byte became U+FFFD: two external ids could become one.
  it.effect("a body whose bytes are not UTF-8 is refused", function* () {
    const { send } = yield* TestServer
    const ids = yield* things(send)
    for (const [name, operation] of withBody) {
      if (name === "register") continue
      const text = JSON.stringify(bodyOf(name, ids))
      for (const body of [Buffer.from(text.replace("{", '{"\u00ff":1,'), "latin1"), gzipSync(text)]) {
        const refused = expectError(yield* send(operation.method, pathOf(operation, ids), { body, headers: json }), 400)
        expect(JSON.stringify(refused), name).toContain("not UTF-8")
      }
    }
  })

  it.effect("every 401 says how to send a credential, and no other answer does", function* () {
    const { send } = yield* TestServer
    const ids = yield* things(send)
    const wrong = { authorization: "Bearer wrong" }
    for (const [name, operation] of all) {
      const request = { json: bodyOf(name, ids), headers: wrong }
      const answer = yield* send(operation.method, pathOf(operation, ids), request)
      expectError(answer, 401, name)
      expect(answer.headers["www-authenticate"], name).toBe("Bearer")
    }
    for (const path of ["/healthz", "/nope", "/api/v0/orgs?limit=0"]) {
      expect((yield* send("GET", path)).headers["www-authenticate"]).toBeUndefined()
    }
  })

  it.effect("text that no database column can store is a 400 or a 404 everywhere, never a 500", function* () {
    const { send } = yield* TestServer
    const ids = yield* things(send)
    const bad = ["a\\u0000b", "\\u0000", "\\ud800", "a\\udfffb", "\\udc00\\ud800"]
    for (const [name, operation] of withBody) {
      if (name === "register") continue
      const optional = {
        orgId: "x",
        expiresAt: "x",
        defaultBranch: "x",
        subdomain: "x",
        hostOwner: "x",
        hostRepo: "x",
      }
      for (const field of Object.keys({ ...bodyOf(name, ids), ...optional })) {
        for (const text of bad) {
          const link = field.startsWith("host") ? { hostRepo: "a", hostOwner: "a" } : {}
          const { [field]: _, ...rest } = { ...bodyOf(name, ids), ...link } as Record<string, string>
          const body = JSON.stringify({ ...rest, [field]: "@" }).replace('"@"', () => `"${text}"`)
          const answer = yield* send(operation.method, pathOf(operation, ids), { body, headers: json })
          const known = `"${field}"` in rest || new RegExp(`"${field}"`).test(body)
          expect(known && [200, 400, 401, 404, 409].includes(answer.status), `${name} ${body} ${answer.text}`).toBe(
            true,
          )
          if (answer.status !== 200) expect(faultOfError(answer)).toBeUndefined()
          // A known field with such text is never accepted. For validate, it is an invalid key.
          const refusal = name === "validateKey" && field === "key" ? 401 : 400
          if (field in (bodyOf(name, ids) ?? {})) expect(answer.status, body).toBe(refusal)
        }
      }
    }
    const segments = ["%00", "a%00b", "%ED%A0%80", "%ff", "%", "%2", "%zz", "%2F", "%2e%2e", "..", ".", "%5C", "'", '"']
    for (const [, operation] of all) {
      const body = operation.request === undefined ? {} : { json: { name: "a" } }
      for (const field of operation.path.match(/\{\w+\}/g) ?? []) {
        for (const segment of [...segments, "a".repeat(8_000), "%F0%9F%93%9A", "__proto__", "constructor"]) {
          const path = pathOf(operation, { ...ids, [field.slice(1, -1)]: segment })
          const answer = yield* send(operation.method, path, body)
          expect([400, 404], `${operation.method} ${path} ${answer.text}`).toContain(answer.status)
          expect(faultOfError(answer)).toBeUndefined()
        }
      }
      if (operation.method !== "GET") continue
      for (const query of [
        "cursor=%00",
        "cursor=%ED%A0%80",
        "cursor=%ff",
        "cursor=a&cursor=b",
        "orgId=%00",
        "orgId=",
      ]) {
        const answer = yield* send("GET", `${pathOf(operation, ids)}?${query}`)
        expectError(answer, 400, `${operation.path}?${query}`)
      }
    }
  })

  it.effect("names of the prototype are ordinary names", function* () {
    const { send } = yield* TestServer
    const post = (body: string) => send("POST", "/api/v0/projects", { body, headers: json })
    expectError(yield* post('{"__proto__":{"name":"a"}}'), 400)
    for (const name of ["__proto__", "constructor", "toString"]) {
      const refused = yield* post(`{"name":"a","${name}":{"orgId":"x"}}`)
      expect(expectError(refused, 400)).toContain(`${name} is not a field of this operation`)
    }
    const made = yield* post('{"name":"constructor"}')
    expect(made.status).toBe(200)
    expect((made.json as { name: string }).name).toBe("constructor")
    expect((yield* post('{"name":"__proto__"}')).status).toBe(200)
    expectError(yield* post(`{"name":"a","orgId":"__proto__"}`), 404)
    const queried = yield* send("GET", "/api/v0/projects?__proto__=1&constructor=2")
    expect(expectError(queried, 400)).toContain("constructor is not a field of this operation")
  })

  it.effect("an unknown path is a 404 in the shape of the interface of its prefix", function* () {
    const { send } = yield* TestServer
    const paths = ["/", "/api", "/api/v0", "/api/v0/nope", "/nope", "/v10/webhooks", "/v1x"]
    for (const path of [...paths, "*", `/${"a".repeat(9_000)}`, "/%", "/api/v0/%ff"]) {
      for (const method of ["GET", "POST"]) {
        const answer = yield* send(method, path, method === "POST" ? { body: "{", headers: json } : {})
        expect(expectError(answer, 404, path)).toBe("There is no operation at this path. /docs lists all operations.")
      }
    }
    for (const path of ["/v1", "/v1/", "/v1/nope", "/v1?a=/api", "/v1/%", "/v1/%00"]) {
      const answer = yield* send("POST", path, { json: {} })
      expect(answer.status, path).toBe(404)
      expect(answer.json).toEqual({
        success: false,
        message: "There is no operation at this path. /docs lists all operations.",
        code: "not_found",
      })
      expect(answer.headers["content-type"]).toBe("application/json")
    }
  })

  it.effect("every path of the document has its own methods only, and names them", function* () {
    const { send } = yield* TestServer
    const { paths } = OpenApi.fromApi(Api)
    for (const [path, operations] of Object.entries(paths)) {
      const own = Object.keys(operations).map((method) => method.toUpperCase())
      const allow = [...own, ...(own.includes("GET") ? ["HEAD"] : [])].sort()
      const at = path.replaceAll(/\{\w+\}/g, "01KAHBMKZ3D2X7S5QN8W4V6R9T")
      // A proxy asks with the method of its client.
      if (path === "/api/v0/keys/authorize") continue
      // For other methods, import is the id of a key.
      if (path === "/api/v0/orgs/{orgId}/keys/import") continue
      for (const method of ["OPTIONS", "GET", "POST", "PUT", "PATCH", "DELETE"]) {
        if (own.includes(method)) continue
        const answer = yield* send(method, at)
        expect([answer.status, answer.headers.allow?.split(", ").sort()], `${method} ${path}`).toEqual([405, allow])
      }
    }
  })

  it.effect("a wrong method is a 405 that lists the right ones; HEAD answers like GET, without the body", function* () {
    const { send } = yield* TestServer
    const ids = yield* things(send)
    for (const method of ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "QUERY", "PROPFIND"]) {
      const answer = yield* send(method, "/api/v0/projects")
      expect(expectError(answer, 405, method)).toBe(`This path takes POST, GET, HEAD, not ${method}.`)
      expect(answer.json).toMatchObject({ code: "method_not_allowed" })
      expect(answer.headers.allow).toBe("POST, GET, HEAD")
    }
    for (const [path, allow] of [
      ["/api/v0/keys/validate", "POST"],
      [`/api/v0/orgs/${ids.orgId}/keys/${ids.id}`, "GET, HEAD, PATCH, DELETE"],
      // /api/v0/orgs/{orgId} matches it too, and has more methods.
      ["/api/v0/orgs/active", "GET, HEAD"],
      ["/docs", "GET, HEAD"],
      ["/metrics", "GET, HEAD"],
    ]) {
      const answer = yield* send("PUT", path!, { json: {} })
      expectError(answer, 405, path)
      expect(answer.headers.allow, path).toBe(allow)
    }
    for (const [path, status] of [
      ["/api/v0/projects", 200],
      [`/api/v0/projects/${ids.projectId}`, 200],
      ["/nope", 404],
    ]) {
      const head = yield* send("HEAD", String(path))
      const get = yield* send("GET", String(path))
      expect([head.status, head.text]).toEqual([status, ""])
      expect(head.headers["content-type"]).toBe(get.headers["content-type"])
    }
  })

  it.effect("a valid x-request-id is returned and any other is replaced; nothing is cached", function* () {
    const { send, logs } = yield* TestServer
    const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
    const idFor = (id: string | Array<string>, path = "/healthz") =>
      Effect.map(send("GET", path, { headers: { "x-request-id": id } }), ({ headers }) => headers["x-request-id"])
    for (const id of ["a", "req-1", "a".repeat(128), "A.b_c:d/e+f=", "01KAHBMKZ3D2X7S5QN8W4V6R9T"]) {
      expect(yield* idFor(id)).toBe(id)
      expect(yield* idFor(id, "/nope")).toBe(id)
    }
    for (const id of ["", "a b", "a".repeat(129), 'a"b', "a,b", "<script>", "a\tb", "\u00e9", ["a", "b"]]) {
      expect(yield* idFor(id), String(id)).toMatch(uuid)
    }
    const ids = new Set<string>()
    for (const [, operation] of all) {
      const missing = { orgId: "x", projectId: "x", id: "x" }
      const { headers } = yield* send(operation.method, pathOf(operation, missing), { json: {} })
      expect(headers["x-request-id"]).toMatch(uuid)
      expect(headers["cache-control"]).toBe("no-store")
      expect(headers["x-content-type-options"]).toBe("nosniff")
      ids.add(String(headers["x-request-id"]))
    }
    expect(ids.size).toBe(all.length)
    expect(logs()).not.toContain("A request failed")
  })

  it.effect("malformed HTTP is refused in the documented shape too", function* () {
    const { url } = yield* TestServer
    const refused: ReadonlyArray<readonly [string, number, string]> = [
      ["nonsense\r\n\r\n", 400, "invalid_request"],
      ["FOO / HTTP/1.1\r\nhost: a\r\n\r\n", 400, "invalid_request"],
      ["GET / HTTP/9.9\r\nhost: a\r\n\r\n", 400, "invalid_request"],
      [`GET / HTTP/1.1\r\nhost: a\r\nx: ${"a".repeat(20_000)}\r\n\r\n`, 431, "headers_too_large"],
      ["POST /api/v0/orgs HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n", 400, "invalid_request"],
      ["GET / HTTP/1.1\r\nhost: a\r\nexpect: tea\r\n\r\n", 417, "expectation_failed"],
    ]
    for (const [bytes, status, code] of refused) {
      const answer = yield* raw(url, bytes)
      expect(answer, bytes.slice(0, 60)).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
      const [head, body] = answer.split("\r\n\r\n")
      expect(head).toMatch(/content-type: application\/json/i)
      expect(head).toMatch(/x-request-id: \S+/i)
      expect(JSON.parse(body!)).toEqual({ error: expect.stringMatching(/\.$/), code })
    }
    const noHost = yield* raw(url, "GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n")
    expect(noHost).toMatch(/^HTTP\/1\.1 200 /)
  })
})
