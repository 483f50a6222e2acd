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

// Node drops what standard output does not take.
process.stdout.on("error", ({ code }: NodeJS.ErrnoException) => {
  // A reader such as head has what it wants.
  if (process.exitCode === 1 || code === "EPIPE") return
  process.exitCode = 1
  process.stderr.write(
    `gatehouse: Standard output cannot be written (${code}). Free space there, and run the command again\n`,
  )
})

Command.run(gatehouse, { version }).pipe(Effect.provide(services), reported, NodeRuntime.runMain(runOptions))
