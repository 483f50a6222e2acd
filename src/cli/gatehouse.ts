import { Argument, Command } from "effect/cli"
import { alerts } from "./alertsCommand.ts"
import { api } from "./apiCommand.ts"
import { audit } from "./auditCommand.ts"
import { demo } from "./demoCommand.ts"
import { deployments, projects } from "./projectsCommand.ts"
import { doctor } from "./doctorCommand.ts"
import { root } from "./flags.ts"
import { events, webhooks } from "./webhooksCommand.ts"
import { eventTypes } from "./eventTypesCommand.ts"
import { imports } from "./importCommand.ts"
import { jobs } from "./jobsCommand.ts"
import { keys, roles } from "./keysCommand.ts"
import { listen } from "./listenCommand.ts"
import { login, logout, whoami } from "./loginCommand.ts"
import { migrate } from "./migrateCommand.ts"
import { moveData } from "./moveDataCommand.ts"
import { nodes } from "./nodesCommand.ts"
import { orgs } from "./orgsCommand.ts"
import { outbox } from "./outboxCommand.ts"
import { plain, usage } from "./output.ts"
import { overview } from "./overviewCommand.ts"
import { register } from "./registerCommand.ts"
import { schedules } from "./schedulesCommand.ts"
import { people } from "./peopleCommand.ts"
import { portal } from "./portalCommand.ts"
import { workflows } from "./workflowsCommand.ts"
import { secrets } from "./secretsCommand.ts"
import { serve } from "./serveCommand.ts"

const described = root.pipe(
  Command.withDescription(
    "API keys, webhooks, jobs, projects and CI deployments. Set GATEHOUSE_TOKEN to an API key or to the server's ADMIN_TOKEN, or use login, for the commands that call the service.",
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
  people,
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

/** Whether each word is a command of the one before it; the words after a command without others do not count. */
const isCommand = ({ subcommands }: Command.Command.Any, [name, ...others]: ReadonlyArray<string>): boolean => {
  const commands = subcommands.flatMap((group) => group.commands)
  if (name === undefined || commands.length === 0) return true
  const next = commands.find((one) => one.name === name || one.alias === name)
  return next !== undefined && isCommand(next, others)
}

/** `gatehouse help keys create` is `gatehouse keys create --help`. */
const help = Command.make(
  "help",
  { command: Argument.String("command").pipe(Argument.withDescription("A command"), Argument.variadic()) },
  ({ command }) => {
    const all = Command.withSubcommands(described, commands)
    return isCommand(all, command)
      ? Command.runWith(all, { version: "" })([...command, "--help"])
      : usage(`There is no command ${plain(command.join(" "))}; see gatehouse help`)
  },
).pipe(Command.withDescription("Show the help of a command"))

/** The command line. Each command, or group of commands, is a file. */
export const gatehouse = described.pipe(Command.withSubcommands([...commands, help]))
