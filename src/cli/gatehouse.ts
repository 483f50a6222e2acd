import { Argument, Command } from "effect/cli"
import { alerts } from "./alerts.ts"
import { api } from "./api.ts"
import { audit } from "./audit.ts"
import { demo } from "./demo.ts"
import { deployments, projects } from "./projects.ts"
import { doctor } from "./doctor.ts"
import { root } from "./flags.ts"
import { events, webhooks } from "./webhooks.ts"
import { eventTypes } from "./eventTypes.ts"
import { imports } from "./import.ts"
import { jobs } from "./jobs.ts"
import { keys, roles } from "./keys.ts"
import { listen } from "./listen.ts"
import { login, logout, whoami } from "./login.ts"
import { migrate } from "./migrate.ts"
import { moveData } from "./moveData.ts"
import { nodes } from "./nodes.ts"
import { orgs } from "./orgs.ts"
import { outbox } from "./outbox.ts"
import { overview } from "./overview.ts"
import { register } from "./register.ts"
import { schedules } from "./schedules.ts"
import { portal } from "./portal.ts"
import { workflows } from "./workflows.ts"
import { secrets } from "./secrets.ts"
import { serve } from "./serve.ts"

const described = root.pipe(
  Command.withDescription(
    "API keys, projects, CI deployments and webhooks. Set GATEHOUSE_TOKEN to an API key or to the server's ADMIN_TOKEN, or use login, for the commands that call the service.",
  ),
)

const commands = [
  serve,
  demo,
  migrate,
  moveData,
  login,
  logout,
  whoami,
  orgs,
  projects,
  deployments,
  keys,
  roles,
  audit,
  alerts,
  overview,
  webhooks,
  events,
  eventTypes,
  jobs,
  schedules,
  outbox,
  imports,
  workflows,
  portal,
  listen,
  register,
  api,
  secrets,
  nodes,
  doctor,
] as const

/** `gatehouse help keys create` is `gatehouse keys create --help`. */
const help = Command.make(
  "help",
  { command: Argument.String("command").pipe(Argument.withDescription("A command"), Argument.variadic()) },
  ({ command }) =>
    Command.runWith(Command.withSubcommands(described, commands), { version: "" })([...command, "--help"]),
).pipe(Command.withDescription("Show the help of a command"))

/** The command line. Each command, or group of commands, is a file. */
export const gatehouse = described.pipe(Command.withSubcommands([...commands, help]))
