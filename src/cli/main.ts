#!/usr/bin/env node
import { enableCompileCache } from "node:module"

// Caches compiled code in the temporary folder (or NODE_COMPILE_CACHE), which makes the next start a third faster.
enableCompileCache()
await import("./runCommand.ts")
