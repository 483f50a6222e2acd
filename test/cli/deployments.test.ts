import { expect } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { runCli } from "../support/cli.ts"
import { layer } from "../support/it.ts"
import { makeOidcProvider, type OidcProvider } from "../support/oidc.ts"
import { adminToken, guarded, TestServer } from "../support/server.ts"

class Provider extends Context.Service<Provider, OidcProvider>()("test/Provider") {
  static readonly layer = Layer.effect(Provider, makeOidcProvider())
}

const environment = Effect.map(Provider, ({ audience, issuer }) => ({
  ...guarded,
  GITHUB_OIDC_ISSUER: issuer,
  OIDC_AUDIENCE: audience,
  OIDC_ALLOWED_OWNERS: "*",
}))

layer(Layer.provideMerge(TestServer.layer(environment), Provider.layer), { excludeTestServices: true })(
  "deployments",
  (it) => {
    it.effect("the list marks the current deployment, also after another one is promoted", function* () {
      const { send, url } = yield* TestServer
      const { sign } = yield* Provider
      const cli = (args: ReadonlyArray<string>) =>
        runCli(["deployments", ...args], { env: { GATEHOUSE_URL: url, GATEHOUSE_TOKEN: adminToken } })
      const register = Effect.fnUntraced(function* (claims: Record<string, string>) {
        const answer = yield* send("POST", "/api/v0/register-deployment", { json: {}, as: yield* sign(claims) })
        expect(answer.status).toBe(200)
        return (answer.json as { readonly projectId: string }).projectId
      })
      const project = yield* register({ ref: "refs/heads/main", run_id: "1" })
      yield* register({ ref: "refs/heads/topic", run_id: "2" })

      const branches = Effect.map(cli(["list", project]), ({ out }) =>
        out
          .split("\n")
          .slice(1, 3)
          .map((line) => line.split(/ {2,}/).slice(0, 3)),
      )
      const [topic, main] = yield* branches
      expect([topic!.slice(1), main!.slice(1)]).toEqual([
        ["no", "topic"],
        ["yes", "main"],
      ])
      yield* cli(["promote", project, topic![0]!])
      expect((yield* branches).map(([, isCurrent]) => isCurrent)).toEqual(["yes", "no"])
    })
  },
)
