#!/usr/bin/env node
import { NodeRuntime, NodeServices } from "@effect/platform-node"
import { Effect } from "effect"
import { CliConfig, CliOutput, Command, GlobalFlag } from "effect/cli"
import { FetchHttpClient } from "effect/http"
import { readFileSync } from "node:fs"
import { reported, runOptions } from "../exit.ts"
import { gatehouse } from "./gatehouse.ts"
import { presenter } from "./presenter.ts"

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  readonly version: string
}

Command.run(gatehouse, { version }).pipe(
  Effect.provide([
    NodeServices.layer,
    FetchHttpClient.layer,
    CliOutput.layerPresenter(presenter),
    // LOG_LEVEL has the level, and every command is short enough to be typed.
    CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] }),
  ]),
  reported,
  NodeRuntime.runMain(runOptions),
)
