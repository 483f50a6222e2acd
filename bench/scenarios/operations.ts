import { forgetDeployments, settle } from "../support/fill.ts"
import { owner, startIssuer } from "../support/issuer.ts"
import { type Load, type LoadRequest, prepareLoad } from "../support/load.ts"
import { startPeer } from "../support/peer.ts"
import { folder, startPostgres } from "../support/postgres.ts"
import { atMost, figure, type Scenario } from "../support/result.ts"
import { compare, type Compared } from "../support/rounds.ts"
import { adminToken, asAdministrator, makeTenant, startService, times } from "../support/service.ts"

const audience = "https://gatehouse.example"
/** The number of repositories whose runs register, and of endpoints in a list. */
const repositories = 200
const endpoints = 10

/** Everything but validation: the CPU of each operation, beside the same operation written by hand. */
export const operations: Scenario = {
  name: "operations",
  title: "Other operations",
  about:
    `Keys and projects created by the administrator, runs of ${repositories} repositories registered with CI tokens (keys ` +
    `of the issuer known), ${endpoints} endpoints listed with a key; beside the same by hand on Fastify and pg.`,
  quick: { rounds: 2, seconds: 1 },
  run: async (scope, { rounds, say, seconds, warmUp }) => {
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const issuer = await startIssuer(scope, audience)
    const tokens = await issuer.tokens(2_500 * (seconds + 1), repositories)

    const url = await postgres.database("gatehouse")
    const service = await startService(scope, home, {
      DATABASE_URL: url,
      GITHUB_OIDC_ISSUER: issuer.url,
      OIDC_AUDIENCE: audience,
      OIDC_ALLOWED_OWNERS: owner,
    })
    const { key, orgId, projectId } = await makeTenant(service)
    const endpoint = { url: "https://localhost/", signing_secret: "s" }
    await times(endpoints, () => service.call(key, "/v1/webhooks/create", endpoint))
    const peerUrl = await postgres.database("peer")
    const peer = await startPeer(scope, home, "operations", {
      DATABASE_URL: peerUrl,
      ADMIN_TOKEN: adminToken,
      ISSUER: issuer.url,
      AUDIENCE: audience,
      TENANT: JSON.stringify({ key, orgId, projectId, endpoints }),
    })
    const servers = {
      Gatehouse: { ...service, query: await postgres.connect(url) },
      "by hand": { ...peer, query: await postgres.connect(peerUrl) },
    }

    const json = { "content-type": "application/json" }
    const request = (path: string, headers: Readonly<Record<string, string>>, body: object): LoadRequest => ({
      method: "POST",
      path,
      headers,
      body: JSON.stringify(body),
    })
    const loads: Record<string, ReadonlyArray<LoadRequest>> = {
      "create a key": [request("/api/v0/keys", asAdministrator, { name: "bench", projectId })],
      "create a project": [request("/api/v0/projects", asAdministrator, { name: "bench", orgId })],
      "register a deployment": tokens.map((token) =>
        request("/api/v0/register-deployment", { ...json, authorization: `Bearer ${token}` }, {}),
      ),
      "list webhook endpoints": [request("/v1/webhooks/list", { ...json, "x-api-key": key }, {})],
    }
    let again = 0
    const rows: Array<ReadonlyArray<string>> = []
    const bars = []
    for (const [name, requests] of Object.entries(loads)) {
      const subjects: Record<string, (seconds: number) => Promise<Load>> = {}
      for (const [who, { pid, query, url }] of Object.entries(servers)) {
        const load = prepareLoad(home, url, requests, { server: pid, database: postgres.cpu })
        subjects[`${name}, ${who}`] = async (time) => {
          if (requests !== loads["register a deployment"]) return load(time)
          await forgetDeployments(query)
          const made = await load(time)
          if (made.requests > tokens.length) again++
          return made
        }
        await settle(query)
      }
      const found = await compare(subjects, { rounds, seconds, warmUp, say })
      const [ours, hand] = Object.values(found) as [Compared, Compared]
      rows.push(...Object.entries(found).map(([who, load]) => row(who, load, hand)))
      bars.push(atMost(`CPU to ${name} ÷ by hand`, 2, ours.cpu / hand.cpu))
    }
    return {
      tables: [
        {
          title: "Operations",
          columns: ["", "a second", "CPU µs", "× by hand", "PostgreSQL CPU µs", "p50 ms", "p99 ms"],
          rows,
        },
      ],
      bars,
      notes: again === 0 ? [] : [`In ${again} measurements the tokens ran out, and runs were registered again.`],
    }
  },
}

const row = (name: string, load: Compared, hand: Compared) => [
  name,
  figure(load.perSecond),
  figure(load.cpu),
  figure(load.cpu / hand.cpu),
  figure(load.databaseCpu),
  figure(load.p50),
  figure(load.p99),
]
