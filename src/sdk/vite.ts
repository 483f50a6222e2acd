import { Effect, Result } from "effect"
import { FetchHttpClient } from "effect/http"
import type { Plugin, ResolvedConfig } from "vite"
import { isGitHubActions, register } from "./register.ts"

export interface GatehouseOptions {
  /** The service's address: `https://gatehouse.example.com`. Default: the environment variable `GATEHOUSE_URL`. */
  readonly url?: string | undefined
  /** One of the service's `OIDC_AUDIENCE`; needed only where that is not the url, which is its default. */
  readonly audience?: string | undefined
  /** Whether a deployment that cannot be registered breaks the build. Default false: it is a warning. */
  readonly strict?: boolean | undefined
}

/**
 * A Vite plugin that registers the deployment with Gatehouse once the bundle is written. In a run of GitHub Actions it
 * asks the runner for the run's own OIDC token, so that no secret is stored; anywhere else it does nothing.
 * The workflow's job needs `permissions: id-token: write`.
 *
 * @example
 * ```ts
 * import gatehouse from "gatehouse/vite"
 * import { defineConfig } from "vite"
 *
 * export default defineConfig({ plugins: [gatehouse({ url: "https://gatehouse.example.com" })] })
 * ```
 */
const gatehouse = ({ audience, strict = false, url }: GatehouseOptions = {}): Plugin => {
  let logger: ResolvedConfig["logger"]
  // A build of several outputs writes several bundles, and is one deployment.
  let begun = false
  return {
    name: "gatehouse",
    apply: "build",
    configResolved: (config) => {
      logger = config.logger
    },
    writeBundle: {
      sequential: true,
      order: "post",
      async handler() {
        if (begun || this.meta.watchMode || !isGitHubActions(process.env)) return
        begun = true
        const fault = await attempt(url ?? process.env["GATEHOUSE_URL"] ?? "", audience, (message) =>
          logger.info(message),
        )
        if (fault === undefined) return
        if (strict) this.error(fault)
        logger.warn(`[gatehouse] ${fault}`)
      },
    },
  }
}

/** Registers; gives what went wrong. */
const attempt = async (url: string, audience: string | undefined, tell: (message: string) => void) => {
  if (!URL.canParse(url)) {
    return `The deployment is not registered: ${url === "" ? "the service's address is missing" : "the service's address is no URL"}; set the plugin's option url, or GATEHOUSE_URL`
  }
  const result = await register({ url, audience, environment: process.env }).pipe(
    Effect.provide(FetchHttpClient.layer),
    Effect.result,
    Effect.runPromise,
  )
  if (Result.isFailure(result)) return `The deployment is not registered: ${result.failure.message}`
  const { branch, preview, projectId } = result.success
  tell(`[gatehouse] ${preview ? "Preview" : "Deployment"} of ${branch} registered with the project ${projectId}`)
  return undefined
}

export default gatehouse
