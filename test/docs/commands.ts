import { Cause, ConfigProvider, Console, Data, Effect, Exit, Layer, Option } from "effect"
import { Command } from "effect/cli"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { variables as ofService } from "#src/boot/variables.ts"
import { gatehouse } from "#src/cli/gatehouse.ts"
import { services } from "#src/cli/services.ts"
import { measured } from "../../bench/measured.ts"
import { repository } from "./pages.ts"
import { curlRequest, faultOfRequest } from "./requests.ts"
import type { Call } from "./shell.ts"

const read = (path: string) => readFileSync(repository + path, "utf8")
const { scripts } = JSON.parse(read("package.json")) as { readonly scripts: Readonly<Record<string, string>> }

/** Every environment variable that the service or its command line reads. */
export const variables: ReadonlyArray<string> = [
  ...Object.keys(ofService),
  "GATEHOUSE_ID_TOKEN",
  "GATEHOUSE_URL",
  "GATEHOUSE_TOKEN",
  "GATEHOUSE_PROFILE",
  "GATEHOUSE_WEBHOOK_SECRET",
  "GATEHOUSE_OUTBOX_DATABASE_URL",
  "GATEHOUSE_ALERT_URL",
  "GATEHOUSE_IMPORT_TOKEN",
]

/** Variables that Node reads. */
export const ofNode = ["NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NODE_COMPILE_CACHE", "NODE_DISABLE_COMPILE_CACHE"]

class Understood extends Data.TaggedError("Understood") {}
/** The command line, which stops where a command would start. */
const dry = Command.provideEffectDiscard(gatehouse, Effect.fail(new Understood()))

/** The fault that the command line finds in its arguments. */
export const faultOfCommand = (args: ReadonlyArray<string>) =>
  Command.runWith(dry, { version: "0.0.0", renderErrors: false })(args).pipe(
    Effect.provide(Layer.merge(services, ConfigProvider.layer(ConfigProvider.fromEnvRecord({})))),
    Effect.provideService(Console.Console, { ...console, log: () => {}, error: () => {} } as Console.Console),
    Effect.exit,
    Effect.map((exit) => {
      if (Exit.isSuccess(exit)) return undefined
      const error = Option.getOrUndefined(Cause.findErrorOption(exit.cause))
      if (error instanceof Understood) return undefined
      const faults = error !== undefined && "errors" in error ? error.errors.map(({ message }) => message) : []
      return `gatehouse ${args.join(" ")}: ${faults.length > 0 ? faults.join("; ") : Cause.pretty(exit.cause)}`
    }),
  )

const fileFault = (path: string | undefined) =>
  path !== undefined && existsSync(repository + path) ? undefined : `there is no ${path}`

const faultOfVitest = (args: ReadonlyArray<string>) => {
  const [run, flag, project, ...rest] = args
  if (run !== "run" || flag !== "--project") return `vitest ${args.join(" ")} is not understood`
  if (!read("vitest.config.ts").includes(`name: "${project}"`)) return `there is no project ${project}`
  if (rest[0] !== "-t") return fileFault(rest[0])
  const files = readdirSync(`${repository}test/${project}`).filter((name) => name.endsWith(".test.ts"))
  return files.some((name) => read(`test/${project}/${name}`).includes(rest[1]!)) ? undefined : `no test is ${rest[1]}`
}

const faultOfScript = (name: string, rest: ReadonlyArray<string>) => {
  const [separator, ...args] = rest
  if (scripts[name] === undefined) return `there is no script ${name}`
  if (separator === undefined) return undefined
  if (separator === "-w") return fileFault(`packages/${args[0]?.replace("gatehouse-", "")}/package.json`)
  if (separator !== "--") return `npm run ${name} ${separator} gives npm the argument`
  if (name === "gatehouse") return faultOfCommand(args)
  if (name === "sim") {
    const strange = args.find((arg) => !read("test/sim/main.ts").includes(`${arg.replace(/^--|=.*$/g, "")}: { type:`))
    return strange === undefined ? undefined : `npm run sim does not take ${strange}`
  }
  const taken = name === "bench" ? read("bench/main.ts") + JSON.stringify(Object.keys(measured)) : ""
  const strange = args.find((arg) => !new RegExp(`["(|]${arg.replace(/^--/, "")}["|)]`).test(taken))
  return strange === undefined ? undefined : `npm run ${name} does not take ${strange}`
}

/** The packages of this repository, with the names of their tarballs. */
const tarball = /(?:^|\/)gatehouse-(?:server|webhooks|client|gateway|worker)-\d+\.\d+\.\d+\.tgz$/

const faultOfNpm = ([word, ...rest]: ReadonlyArray<string>) => {
  if (word === "ci" || (word === "pack" && rest.every((arg) => arg === "--workspaces"))) return undefined
  if (word === "install") {
    const strange = rest.find((arg) => arg !== "--save-dev" && !tarball.test(arg))
    return strange === undefined ? undefined : `${strange} is no package of this repository`
  }
  if (word !== "run") return faultOfScript(word!, rest)
  const [name, ...args] = rest[0] === "-s" ? rest.slice(1) : rest
  return faultOfScript(name!, args)
}

const faultOfDocker = ([word, ...rest]: ReadonlyArray<string>) => {
  if (word === "build") return fileFault("Dockerfile")
  if (word === "compose") return fileFault(rest[rest.indexOf("-f") + 1])
  if (word === "exec") return rest[2] === "dist/cli/main.js" ? faultOfCommand(rest.slice(3)) : "no such file"
  const given = rest.flatMap((arg, at) => (rest[at - 1] === "-e" ? [arg.split("=", 1)[0]!] : []))
  const strange = given.find((name) => !variables.includes(name))
  return strange === undefined ? undefined : `there is no variable ${strange}`
}

type Fault = string | undefined

/** The check of each program's calls. */
const faults: Readonly<Record<string, (args: ReadonlyArray<string>) => Fault | Effect.Effect<Fault>>> = {
  curl: (args) => faultOfRequest(curlRequest(args)),
  gatehouse: faultOfCommand,
  npx: ([name, ...args]) => {
    // Without --no, npx would install another package with this name.
    if (name === "gatehouse") return "npx gatehouse may run a stranger's package; write npx --no gatehouse"
    return name === "--no" ? faultOfCommand(args.slice(1)) : faultOfVitest(args)
  },
  npm: faultOfNpm,
  docker: faultOfDocker,
  helm: ([, , chart]) => fileFault(`${chart}/Chart.yaml`),
  kubectl: (args) => fileFault(args[args.indexOf("-f") + 1]),
}

/** Programs of others, whose blocks must only be valid shell, and the reason why that is enough. */
const others: Readonly<Record<string, string>> = {
  openssl: "prints random text, or makes a certificate",
  jq: "reads the runner's answer",
  pg_dump: "test/faults/backup.test.ts backs up by it",
  pg_restore: "the same",
  psql: "test/sdk/outbox.test.ts executes the SQL that it would",
  createdb: "the same, by its SQL",
  createuser: "PostgreSQL's, with its own prompt",
  node: "test/http/webhooks/webhooksReadme.test.ts runs the gateway",
  systemctl: "starts the unit of deploy",
  ".ci/run": "what runs all of this",
}

/** The programs that a block may call. */
export const programs = [...Object.keys(faults), ...Object.keys(others)]

/** The fault of a call: in its arguments, or a variable that nothing reads. */
export const faultOfCall = Effect.fnUntraced(function* ({ args, program, variables: set }: Call) {
  const fault = faults[program]?.(args)
  const said = Effect.isEffect(fault) ? yield* fault : fault
  if (said !== undefined) return said
  const strange = set.find((name) => !variables.includes(name) && !ofNode.includes(name))
  return strange === undefined ? undefined : `${program} is given ${strange}, which nothing reads`
})
