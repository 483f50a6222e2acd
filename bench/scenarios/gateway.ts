import { type LoadRequest, prepareLoad } from "../support/load.ts"
import { folder, startPostgres } from "../support/postgres.ts"
import { atLeast, loadTable, type Scenario } from "../support/result.ts"
import { compare } from "../support/rounds.ts"
import { asAdministrator, makeTenant, startService, times } from "../support/service.ts"

const keyCount = 200

/**
 * Validation of keys with the settings of a gateway, beside keys without. One service runs both, so that they can be
 * compared.
 */
export const gateway: Scenario = {
  name: "gateway",
  title: "Validate a key with limits, permissions and details",
  about: `POST /api/v0/keys/validate with ${keyCount} keys in turn, on PostgreSQL, 64 connections.`,
  run: async (scope, options) => {
    const home = folder(scope)
    const postgres = await startPostgres(scope)
    const service = await startService(scope, home, { DATABASE_URL: await postgres.database("gateway") })
    const { projectId } = await makeTenant(service)
    const subject = async (settings: object, use: object) => {
      const requests = await times(keyCount, async (n): Promise<LoadRequest> => {
        const { key } = await service.manage("/api/v0/keys", { name: `key ${n}`, projectId, ...settings })
        const body = JSON.stringify({ key, ...use })
        return { method: "POST", path: "/api/v0/keys/validate", headers: asAdministrator, body }
      })
      return prepareLoad(home, service.url, requests, { server: service.pid, database: postgres.cpu })
    }
    // Limits that are never reached, because refusals would count as failures.
    const limits = { rateLimit: { limit: 1_000_000, window: 60 }, credits: { remaining: 10 ** 12 } }
    const subjects = {
      "Without settings": await subject({}, {}),
      "With a rate limit and credits": await subject(limits, {}),
      "With permissions and details": await subject(
        { permissions: ["models.*", "files.read"], externalId: "customer_42", metadata: { plan: "pro" } },
        { permissions: ["models.gpt-5.use"], details: true },
      ),
    }
    const found = await compare(subjects, options)
    const rate = (name: keyof typeof subjects) => found[name]!.perSecond
    const plain = "Without settings"
    return {
      tables: [loadTable("Validate", found, plain)],
      bars: [
        atLeast("With a rate limit and credits ÷ without", 0.8, rate("With a rate limit and credits") / rate(plain)),
        atLeast("With permissions and details ÷ without", 0.9, rate("With permissions and details") / rate(plain)),
      ],
      notes: [],
    }
  },
}
