import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { request } from "undici"
import { answers, type Child, freePort, start } from "./process.ts"
import type { Scope } from "./scope.ts"

const repository = fileURLToPath(new URL("../../", import.meta.url))

/** The administrator's token of every service here: a gateway sends a credential with each validation. */
export const adminToken = "bench-administrator-token"
/** Headers of the administrator's requests. */
export const asAdministrator = { authorization: `Bearer ${adminToken}`, "content-type": "application/json" }

export type Json = Record<string, unknown>

/** One org creates everything that a benchmark needs. */
const noLimits = {
  LIMIT_PROJECTS: "999999999",
  LIMIT_KEYS: "999999999",
  LIMIT_ENDPOINTS: "999999999",
  LIMIT_UNFINISHED_JOBS: "999999999",
  LIMIT_PENDING_DELIVERIES: "999999999",
  LIMIT_STORED_BYTES: "1000TiB",
}

/** Posts JSON; returns the JSON of the response. Any status but 200 is an error. */
export const post = async (url: string, headers: Readonly<Record<string, string>>, json: Json): Promise<Json> => {
  const body = JSON.stringify(json)
  const response = await request(url, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body,
  })
  const text = await response.body.text()
  if (response.statusCode !== 200) throw new Error(`${url} answered ${response.statusCode}: ${text}`)
  return JSON.parse(text) as Json
}

/** The service in a separate process. */
export interface Service extends Child {
  readonly url: string
  /** Milliseconds from its start to its first readiness. */
  readonly tookToStart: number
  /** Posts to it as the administrator. */
  readonly manage: (path: string, json: Json) => Promise<Json>
  /** Posts to its webhook interface with a key. */
  readonly call: (key: string, path: string, json: Json) => Promise<Json>
}

/**
 * Starts the service as it is shipped: `node src/main.ts` in guarded mode, with JSON logs into a file and metrics on.
 * Its data is in DATABASE_URL or DATA_DIR of the environment. An empty ADMIN_TOKEN means open mode.
 *
 * @param checkout the folder of the repository whose service is started: this one, or one of another commit
 */
export const startService = async (
  scope: Scope,
  folder: string,
  environment: Readonly<Record<string, string>>,
  checkout = repository,
): Promise<Service> => {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const credential = environment["ADMIN_TOKEN"] === "" ? {} : asAdministrator
  const since = performance.now()
  const child = await start(scope, {
    command: [process.execPath, join(checkout, "src/main.ts")],
    environment: {
      PORT: String(port),
      ADMIN_TOKEN: adminToken,
      ENCRYPTION_KEY: Buffer.alloc(32).toString("base64"),
      LOG_FORMAT: "json",
      ...noLimits,
      ...environment,
    },
    log: join(folder, `gatehouse-${port}.log`),
    measured: true,
    ready: answers(`${url}/readyz`),
  })
  return {
    ...child,
    url,
    tookToStart: performance.now() - since,
    manage: (path, json) => post(url + path, credential, json),
    call: (key, path, json) => post(url + path, { "x-api-key": key }, json),
  }
}

/** Creates an org, a project and a key of it, through the service. */
export const makeTenant = async (service: Service) => {
  const { orgId } = await service.manage("/api/v0/orgs", { name: "bench" })
  const { projectId } = await service.manage("/api/v0/projects", { name: "bench", orgId })
  const { key } = await service.manage("/api/v0/keys", { name: "bench", projectId })
  return { orgId: orgId as string, projectId: projectId as string, key: key as string }
}

/** Runs `make` this many times, 32 at once; returns the results. */
export const times = async <A>(count: number, make: (n: number) => Promise<A>): Promise<ReadonlyArray<A>> => {
  const made: Array<A> = []
  for (let n = 0; n < count; n += 32) {
    made.push(...(await Promise.all(Array.from({ length: Math.min(32, count - n) }, (_, at) => make(n + at)))))
  }
  return made
}
