import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Effect } from "effect"
import { Command } from "effect/cli"
import { readFileSync } from "node:fs"
import { reported, runOptions } from "../boot/exitCodes.ts"
import { gatehouse } from "./gatehouse.ts"
import { services } from "./services.ts"

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  readonly version: string
}

Command.run(gatehouse, { version }).pipe(Effect.provide(services), reported, NodeRuntime.runMain(runOptions))
