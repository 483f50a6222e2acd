import { Command } from "effect/cli"
import { audit } from "./audit.ts"
import { demo } from "./demo.ts"
import { doctor } from "./doctor.ts"
import { root } from "./flags.ts"
import { jobs } from "./jobs.ts"
import { keys } from "./keys.ts"
import { listen } from "./listen.ts"
import { migrate } from "./migrate.ts"
import { orgs } from "./orgs.ts"
import { overview } from "./overview.ts"
import { projects } from "./projects.ts"
import { register } from "./register.ts"
import { secrets } from "./secrets.ts"
import { serve } from "./serve.ts"
import { webhooks } from "./webhooks.ts"

/** The command line. Each command, or group of commands, is a file. */
export const gatehouse = root.pipe(
  Command.withDescription(
    "API keys, projects, CI deployments and webhooks. Set GATEHOUSE_TOKEN to an API key or to the server's ADMIN_TOKEN for the commands that call the service.",
  ),
  Command.withSubcommands([
    serve,
    demo,
    migrate,
    orgs,
    projects,
    keys,
    audit,
    overview,
    webhooks,
    jobs,
    listen,
    register,
    secrets,
    doctor,
  ]),
)
