import { Clock, ConfigProvider, Console, Context, Effect, Layer, Logger, Redacted } from "effect"
import { Command } from "effect/cli"
import { HttpServer } from "effect/http"
import { exportJWK, generateKeyPair, SignJWT } from "jose"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import * as Config from "../boot/config.ts"
import * as Gatehouse from "../sdk/client.ts"
import { type Environment, register } from "../sdk/register.ts"
import { Json } from "./flags.ts"
import { failure } from "./output.ts"
import { makeReceiver } from "./listenCommand.ts"
import { newSecret } from "./secretInput.ts"

const audience = "https://gatehouse.demo"

/**
 * Starts the whole service in this process, on a free port, with the database in memory and without logs. Returns its
 * URL.
 */
const startService = Effect.fnUntraced(function* (issuer: string) {
  const variables = { PORT: "0", DATA_DIR: "memory", OIDC_AUDIENCE: audience, GITHUB_OIDC_ISSUER: issuer }
  const settings = yield* Effect.provide(Config.load, ConfigProvider.layer(ConfigProvider.fromEnvRecord(variables)))
  const { app } = yield* Effect.promise(() => import("../boot/app.ts"))
  const context = yield* Layer.build(Layer.provide(app(settings), Logger.layer([])))
  return HttpServer.formatAddress(Context.get(context, HttpServer.HttpServer).address)
})

/** Goes from a project to a verified delivery, and calls `tell` with a title and a text for each step. */
const runSteps = Effect.fnUntraced(function* (tell: (title: string, text: string) => Effect.Effect<void>) {
  const runner = yield* makeStandInRunner
  const url = yield* startService(runner.issuer)
  yield* tell("The service", `${url}, its database in memory`)

  const operator = yield* Gatehouse.make({ baseUrl: url })
  const { projectId } = yield* operator.projects.create({ payload: { name: "docs" } })
  yield* tell("A project", `docs, ${projectId}`)

  const { key, prefix } = yield* operator.keys.createForProject({ payload: { name: "ci", projectId } })
  yield* tell("An API key", `${prefix}… (shown only once; stored as a hash)`)

  const valid = yield* operator.keys.validate({ payload: { key } })
  yield* tell("Validated", `the key belongs to the project ${valid.projectId}`)

  yield* operator.projects.update({ params: { projectId }, payload: { hostOwner: "octo-org", hostRepo: "docs" } })
  const registration = yield* register({ url, audience, environment: runner.environment })
  const { currentDeploymentId } = yield* operator.projects.get({ params: { projectId } })
  yield* tell(
    "A CI run registers",
    `${registration.branch} of octo-org/docs is the deployment ${currentDeploymentId}; CI stores no secret: ` +
      "it sent the token of its run (signed here by a stand-in for GitHub)",
  )

  const secret = yield* newSecret
  const receiver = yield* makeReceiver(0, secret)
  const tenant = yield* Gatehouse.make({ baseUrl: url, credential: key })
  yield* tenant.webhooks.create({ payload: { url: receiver.url, signing_secret: Redacted.value(secret) } })
  yield* tell("A webhook endpoint", `${receiver.url}, a receiver in this process`)

  const { job_id } = yield* tenant.jobs.create({ payload: { workflow: "nightly-report" } })
  yield* tenant.jobs.complete({ payload: { job_id, result: { rows: 3 } } })
  yield* tell("A job, finished", `nightly-report, ${job_id}, result {"rows":3}`)

  const arrival = yield* receiver.next
  if ("refused" in arrival) return yield* failure(`The delivery does not verify: ${arrival.refused}`)
  yield* tell(
    "Delivered, verified",
    `${arrival.event.event} of ${arrival.event.job_id}: signature, time and body are correct`,
  )
  return { projectId, keyPrefix: prefix, registration, currentDeploymentId, delivery: arrival }
})

const millis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos / 1_000_000n))

/** Shows the main features in a terminal and keeps nothing. */
export const demo = Command.make(
  "demo",
  {},
  Effect.fnUntraced(function* () {
    const json = yield* Json
    const startedAt = yield* millis
    let step = 0
    const tell = (title: string, text: string) =>
      json ? Effect.void : Console.log(`${++step}  ${title.padEnd(20)}${text}`)
    const made = yield* runSteps(tell).pipe(
      Effect.timeout("30 seconds"),
      Effect.catchTags({
        // Any other error is a defect: everything runs in this process.
        TimeoutError: () => failure("The demo did not finish within 30 seconds. Run it on a less busy machine"),
      }),
    )
    if (json) return yield* Console.log(JSON.stringify(made))
    yield* Console.log(
      `\nDone in ${(((yield* millis) - startedAt) / 1000).toFixed(1)} s; nothing is kept. Next: start the service`,
    )
  }, Effect.scoped),
).pipe(Command.withDescription("Show project, key, CI deployment and webhook in a few seconds; keeps nothing"))

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
 * A stand-in for GitHub's issuer and token endpoint on a loopback port, until the scope closes. It signs tokens of one
 * run with a key of its own. Returns the issuer and the environment variables of a job.
 */
const makeStandInRunner = Effect.gen(function* () {
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
    const documents: Readonly<Record<string, object>> = {
      "/.well-known/openid-configuration": { issuer, jwks_uri: `${issuer}/.well-known/jwks` },
      "/.well-known/jwks": { keys: [key] },
    }
    const audience = url.searchParams.get("audience") ?? ""
    const answer = documents[url.pathname] ?? { value: await sign(issuer, audience) }
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
