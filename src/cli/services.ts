import * as NodeServices from "@effect/platform-node/NodeServices"
import { Layer, Logger } from "effect"
import { CliConfig, CliOutput, GlobalFlag } from "effect/cli"
import { FetchHttpClient } from "effect/http"
import { presenter } from "./presenter.ts"

/** What the commands run on. Logs go to standard error: standard output is what was asked for. */
export const services = Layer.mergeAll(
  NodeServices.layer,
  FetchHttpClient.layer,
  Logger.layer([Logger.withConsoleError(Logger.formatSimple)]),
  CliOutput.layerPresenter(presenter),
  // LOG_LEVEL has the level, and every command is short enough to be typed.
  CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] }),
)
