import { ConfigProvider, Console, Effect, type Exit, Layer, Stdio, Stream } from "effect"
import { Command } from "effect/cli"
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { gatehouse } from "#src/cli/gatehouse.ts"
import { services } from "#src/cli/services.ts"
import { reported, runOptions } from "#src/boot/exitCodes.ts"

export const main = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url))

export interface Invocation {
  /** The whole environment of the command. */
  readonly env?: Readonly<Record<string, string>>
  /** The text on standard input, which is no terminal. */
  readonly stdin?: string
  /** Whether standard output is a terminal. Default: false. */
  readonly terminal?: boolean
  /** Called with each line as it is printed. */
  readonly onLine?: (line: string) => void
}

/** The output of a command, and its exit code. */
export interface Ended {
  readonly out: string
  readonly err: string
  readonly code: number
}

/** Runs a command in this process, with its own environment, and returns its exit code. */
export const runCli = (
  args: ReadonlyArray<string>,
  { env = {}, onLine, stdin = "", terminal = false }: Invocation = {},
) =>
  Effect.gen(function* () {
    const printed = { out: "", err: "" }
    const to = (stream: "out" | "err") => (text: string) => {
      printed[stream] += `${text}\n`
      onLine?.(text)
    }
    const exit = yield* Command.runWith(gatehouse, { version: "0.0.0" })(args).pipe(
      reported,
      Effect.provide(
        Layer.mergeAll(
          services,
          // Later layers replace those of the platform.
          Stdio.layerTest({
            stdin: Stream.make(new TextEncoder().encode(stdin)),
            stdoutIsTerminal: Effect.succeed(terminal),
          }),
          ConfigProvider.layer(ConfigProvider.fromEnvRecord(env)),
        ),
      ),
      Effect.provideService(Console.Console, { ...console, log: to("out"), error: to("err") } as Console.Console),
      Effect.exit,
    )
    const wrong = /^.*\[object \w+\].*$/m.exec(printed.out + printed.err)
    if (wrong !== null) return yield* Effect.die(new Error(`gatehouse ${args.join(" ")} prints: ${wrong[0]}`))
    let code = -1
    runOptions.teardown(exit as Exit.Exit<unknown, unknown>, (given) => (code = given))
    return { ...printed, code } satisfies Ended
  })

/** Runs a program to its end. */
export const run = (
  program: string,
  args: ReadonlyArray<string>,
  options: { readonly env?: NodeJS.ProcessEnv; readonly stdin?: string; readonly cwd?: string } = {},
) =>
  Effect.callback<Ended>((resume) => {
    const child = spawn(program, args, { env: { PATH: process.env["PATH"], ...options.env }, cwd: options.cwd })
    let out = ""
    let err = ""
    child.stdout.on("data", (chunk: Buffer) => (out += chunk.toString()))
    child.stderr.on("data", (chunk: Buffer) => (err += chunk.toString()))
    child.on("error", (error) => resume(Effect.die(error)))
    child.on("close", (code) => resume(Effect.succeed({ out, err, code: code ?? -1 })))
    // A program may end before it has read its input.
    child.stdin.on("error", () => {})
    child.stdin.end(options.stdin ?? "")
    return Effect.sync(() => void child.kill("SIGKILL"))
  })

/** Runs the command line as a separate process. */
export const spawnCli = (args: ReadonlyArray<string>, options: Parameters<typeof run>[2] = {}) =>
  run(process.execPath, [main, ...args], options)
