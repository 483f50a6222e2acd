import { Effect, Result } from "effect"
import { FetchHttpClient } from "effect/http"
import type { Plugin, ResolvedConfig } from "vite"
import { isCi, register } from "./register.ts"

export interface GatehouseOptions {
  /** The address of the service: `https://gatehouse.example.com`. Default: the environment variable `GATEHOUSE_URL`. */
  readonly url?: string | undefined
  /** An audience of the service's `OIDC_AUDIENCE`. Default: `url`. */
  readonly audience?: string | undefined
  /** Whether a failed registration fails the build. Default: false, which logs a warning. */
  readonly strict?: boolean | undefined
}

/**
 * A Vite plugin that registers the deployment with Gatehouse after its bundles are written. It does nothing outside CI.
 * It stores no secret: it takes the OIDC token of the run, which GitHub Actions gives to jobs with
 * `permissions: id-token: write`.
 *
 * @example
 * ```ts
 * import gatehouse from "gatehouse-server/vite"
 * import { defineConfig } from "vite"
 *
 * export default defineConfig({ plugins: [gatehouse({ url: "https://gatehouse.example.com" })] })
 * ```
 */
const gatehouse = ({ audience, strict = false, url }: GatehouseOptions = {}): Plugin => {
  let logger: ResolvedConfig["logger"]
  let isWritten = false
  let hasFailed = false
  let hasStarted = false
  return {
    name: "gatehouse",
    apply: "build",
    configResolved: (config) => {
      logger = config.logger
    },
    renderError: () => void (hasFailed = true),
    writeBundle: () => void (isWritten = true),
    // Once, after all bundles of a build with several outputs, and also after one that has failed.
    closeBundle: {
      sequential: true,
      order: "post",
      async handler() {
        if (hasStarted || !isWritten || hasFailed || this.meta.watchMode || !isCi(process.env)) return
        hasStarted = true
        const fault = await tryRegister(url ?? process.env["GATEHOUSE_URL"] ?? "", audience, (message) =>
          logger.info(message),
        )
        if (fault === undefined) return
        if (strict) this.error(fault)
        logger.warn(`[gatehouse] ${fault}`)
      },
    },
  }
}

/** Registers the deployment. Returns what went wrong, or `undefined`. */
const tryRegister = async (url: string, audience: string | undefined, log: (message: string) => void) => {
  if (!URL.canParse(url)) {
    return `The deployment is not registered: the address of the service is ${url === "" ? "missing" : "not a URL"}. Set the plugin's option url, or GATEHOUSE_URL`
  }
  const result = await register({ url, audience, environment: process.env }).pipe(
    Effect.provide(FetchHttpClient.layer),
    Effect.result,
    Effect.runPromise,
  )
  if (Result.isFailure(result)) return `The deployment is not registered: ${result.failure.message}`
  const { branch, preview, projectId } = result.success
  log(`[gatehouse] ${preview ? "Preview" : "Deployment"} of ${branch} registered with the project ${projectId}`)
  return undefined
}

export default gatehouse
