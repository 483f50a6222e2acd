import { addProjects, forgetDeployments, settle } from "../../support/fill.ts"
import { growthBars, growthTable, type Sizes } from "../../support/growth.ts"
import { owner, startIssuer } from "../../support/issuer.ts"
import { type LoadRequest, prepareLoad } from "../../support/load.ts"
import { folder, startPostgres } from "../../support/postgres.ts"
import { amount, type Found, type RunOptions } from "../../support/result.ts"
import { compare } from "../../support/rounds.ts"
import { type Scope, scoped } from "../../support/scope.ts"
import { asAdministrator, makeTenant, startService } from "../../support/service.ts"

const audience = "https://gatehouse.example"

/** Projects that are created and runs that are registered, beside a thousand projects and beside a million. */
export const projects = (_: Scope, { quick, rounds, say, seconds, warmUp }: RunOptions): Promise<Found> =>
  scoped(async (scope) => {
    const [least, most] = [1_000, quick ? 100_000 : 1_000_000]
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const issuer = await startIssuer(scope, audience)
    const tokens = await issuer.tokens(2_500 * (seconds + 1), 200)
    const serve = async (size: number) => {
      const url = await postgres.database(`projects${size}`)
      const query = await postgres.connect(url)
      const service = await startService(scope, home, {
        DATABASE_URL: url,
        GITHUB_OIDC_ISSUER: issuer.url,
        OIDC_AUDIENCE: audience,
        OIDC_ALLOWED_OWNERS: owner,
      })
      const { orgId } = await makeTenant(service)
      await addProjects(query, orgId, size)
      await settle(query)
      say(`${amount(size)} projects are there`)
      return { size, query, service, orgId }
    }
    const servers = [await serve(least), await serve(most)]
    const operations: Record<string, Sizes> = {}
    const measure = async (name: string, requests: (orgId: string) => ReadonlyArray<LoadRequest>) => {
      const subjects = Object.fromEntries(
        servers.map(({ orgId, query, service, size }) => {
          const watch = { server: service.pid, database: postgres.cpu }
          const load = prepareLoad(home, service.url, requests(orgId), watch)
          return [
            `${name}, ${amount(size)}`,
            async (time: number) => {
              await forgetDeployments(query)
              return load(time)
            },
          ] as const
        }),
      )
      const found = await compare(subjects, { rounds, seconds, warmUp, say })
      operations[name] = Object.values(found).map(({ rounds }, at) => ({
        size: `${amount(servers[at]!.size)} projects`,
        rounds,
      }))
    }
    const post = (path: string, headers: Readonly<Record<string, string>>, json: object) => ({
      method: "POST",
      path,
      headers: { "content-type": "application/json", ...headers },
      body: JSON.stringify(json),
    })
    // First, because creations make the smaller table larger.
    await measure("register a deployment", () =>
      tokens.map((token) => post("/api/v0/register-deployment", { authorization: `Bearer ${token}` }, {})),
    )
    await measure("create a project", (orgId) => [post("/api/v0/projects", asAdministrator, { name: "bench", orgId })])
    return { tables: [growthTable("Projects", operations)], bars: growthBars(operations), notes: [] }
  })
