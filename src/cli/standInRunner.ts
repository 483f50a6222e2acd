import { Effect } from "effect"
import { exportJWK, generateKeyPair, SignJWT } from "jose"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import type { Environment } from "../sdk/register.ts"

/** The claims of the stand-in's tokens, as GitHub names them. */
const runClaims = {
  repository: "octo-org/docs",
  repository_id: "74",
  repository_owner: "octo-org",
  ref: "refs/heads/main",
  sha: "6dcb09b5b57875f334f61aebed695e2e4193db5e",
  event_name: "push",
  run_id: "1658821493",
  run_attempt: "1",
  workflow: "deploy",
  actor: "octocat",
}

/**
 * A stand-in for GitHub's issuer and token endpoint on a loopback port, until the scope closes. It signs tokens of one run
 * with a key of its own. Returns the issuer and the environment variables of a job.
 */
export const makeStandInRunner = Effect.gen(function* () {
  const { privateKey, publicKey } = yield* Effect.promise(() => generateKeyPair("RS256"))
  const key = { ...(yield* Effect.promise(() => exportJWK(publicKey))), kid: "demo", use: "sig", alg: "RS256" }
  const sign = (issuer: string, audience: string) =>
    new SignJWT(runClaims)
      .setProtectedHeader({ alg: "RS256", kid: "demo" })
      .setIssuer(issuer)
      .setAudience(audience)
      .setIssuedAt()
      .setExpirationTime("5m")
      .sign(privateKey)

  const server = createServer(async (request, response) => {
    const issuer = `http://${request.headers.host}`
    const url = new URL(request.url ?? "/", issuer)
    const answer =
      url.pathname === "/.well-known/jwks"
        ? { keys: [key] }
        : { value: await sign(issuer, url.searchParams.get("audience") ?? "") }
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer))
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(0, "127.0.0.1", () => resume(Effect.void))),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeAllConnections()
      }),
  )
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const environment: Environment = {
    GITHUB_ACTIONS: "true",
    ACTIONS_ID_TOKEN_REQUEST_URL: `${issuer}/token?api-version=2.0`,
    ACTIONS_ID_TOKEN_REQUEST_TOKEN: "of-the-demo",
  }
  return { issuer, environment }
})
