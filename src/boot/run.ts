import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { reported, runOptions } from "./exit.ts"
import { serve } from "./serve.ts"

NodeRuntime.runMain(reported(serve), runOptions)
