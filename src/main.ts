import { NodeRuntime } from "@effect/platform-node"
import { reported, runOptions } from "./exit.ts"
import { serve } from "./serve.ts"

NodeRuntime.runMain(reported(serve), runOptions)
