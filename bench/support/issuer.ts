import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { exportJWK, generateKeyPair, SignJWT } from "jose"
import type { Scope } from "./scope.ts"

/** A stand-in for the provider of CI tokens, on a loopback port. */
export interface Issuer {
  readonly url: string
  /**
   * The tokens of `count` pushes, each a run of its own, over `repositories` repositories in turn. Valid for an hour.
   */
  readonly tokens: (count: number, repositories: number) => Promise<ReadonlyArray<string>>
}

/** The owner of the repositories in the tokens. */
export const owner = "bench-owner"

/** Starts an issuer that publishes one key, until the scope closes. */
export const startIssuer = async (scope: Scope, audience: string): Promise<Issuer> => {
  const { privateKey, publicKey } = await generateKeyPair("RS256")
  const keys = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: "bench", alg: "RS256", use: "sig" }] })
  const server = createServer((request, response) => {
    const discovery = JSON.stringify({ issuer: url, jwks_uri: `${url}/.well-known/jwks` })
    response
      .writeHead(200, { "content-type": "application/json" })
      .end(request.url === "/.well-known/jwks" ? keys : discovery)
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  scope.defer(() => void server.close().closeAllConnections())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const sign = (n: number, repositories: number) =>
    new SignJWT({
      repository: `${owner}/repo-${n % repositories}`,
      repository_id: String(1 + (n % repositories)),
      repository_owner: owner,
      ref: "refs/heads/main",
      sha: "6dcb09b5b57875f334f61aebed695e2e4193db5e",
      run_id: String(1_000_000 + n),
      run_attempt: "1",
      event_name: "push",
      actor: "bench",
      workflow: "deploy",
      head_ref: "",
      base_ref: "",
    })
      .setProtectedHeader({ alg: "RS256", typ: "JWT", kid: "bench" })
      .setIssuer(url)
      .setAudience(audience)
      .setSubject("repo")
      .setIssuedAt()
      .setNotBefore("-1m")
      .setExpirationTime("1h")
      .sign(privateKey)
  return {
    url,
    tokens: async (count, repositories) => {
      const made: Array<string> = []
      for (let n = 0; n < count; n += 64) {
        made.push(
          ...(await Promise.all(
            Array.from({ length: Math.min(64, count - n) }, (_, at) => sign(n + at, repositories)),
          )),
        )
      }
      return made
    },
  }
}
