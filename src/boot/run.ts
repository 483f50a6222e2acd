import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { reported, runOptions } from "./exitCodes.ts"
import { serve } from "./serve.ts"

NodeRuntime.runMain(reported(serve), runOptions)
