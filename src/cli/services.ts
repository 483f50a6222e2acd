import * as NodeServices from "@effect/platform-node/NodeServices"
import { Layer, Logger } from "effect"
import { CliConfig, CliOutput, GlobalFlag } from "effect/cli"
import { FetchHttpClient } from "effect/http"
import { presenter } from "./output.ts"

/** The services that the commands need. Logs go to standard error, because scripts read standard output. */
export const services = Layer.mergeAll(
  NodeServices.layer,
  FetchHttpClient.layer,
  Logger.layer([Logger.withConsoleError(Logger.formatSimple)]),
  CliOutput.layerPresenter(presenter),
  // Without the built-in flags for the log level (LOG_LEVEL sets it) and the wizard.
  CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] }),
)
