import { expect, type TestContext } from "@effect/vitest"
import { Effect } from "effect"
import { spawnSync } from "node:child_process"
import { run } from "../support/cli.ts"
import { toolPath } from "../support/tools.ts"

/** A program with its arguments. */
export type Command = readonly [program: string, ...args: ReadonlyArray<string>]

/**
 * How to make and run a client in a language. Commands run in a copy of the language's folder that has the document as
 * `openapi.json`.
 */
export interface Language {
  readonly name: string
  /** Fails where the toolchain is missing or too old. */
  readonly check: Command
  /** Installs the generator, generates the client and compiles it. */
  readonly prepare: ReadonlyArray<Command>
  readonly story: Command
}

/** Other toolchains are not downloaded. */
export const env = { ...process.env, GOTOOLCHAIN: "local", PIP_DISABLE_PIP_VERSION_CHECK: "1" }

/** Whether the toolchain of a program in a folder is missing, which is printed. */
export const isMissing = (what: string, cwd: string, [program, ...args]: Command) => {
  const isHere = spawnSync(program, args, { cwd, env }).status === 0
  if (!isHere) process.stdout.write(`${what} is skipped: no toolchain (${program})\n`)
  return !isHere
}

/** What package managers print when they do not reach their registry. */
const noRegistry =
  /network|connection|could not transfer|dial tcp|temporary failure|timed out|unknown host|from versions: none/i

/** Runs commands that must succeed. Skips the test when a registry is not reached. */
export const prepared = Effect.fnUntraced(function* (
  { skip }: TestContext,
  commands: ReadonlyArray<Command>,
  options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv },
) {
  for (const command of commands) {
    const [program, ...args] = command
    const { code, err, out } = yield* run(program, args, options)
    if (code !== 0 && noRegistry.test(out + err)) skip(`no registry: ${command.join(" ")}`)
    expect(code, out + err).toBe(0)
  }
})

export const pythonCheck: Command = ["python3", "-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 10))"]
const python = "venv/bin/python"
/** Makes an environment of the packages in requirements.txt. */
export const pythonPackages: ReadonlyArray<Command> = [
  ["python3", "-m", "venv", "venv"],
  [python, "-m", "pip", "install", "--requirement", "requirements.txt"],
]
const compilerOptions = [
  "--strict",
  "--noEmit",
  "--exactOptionalPropertyTypes",
  "--allowImportingTsExtensions",
  ...["--target", "es2023", "--lib", "es2023,dom", "--module", "nodenext"],
]
const openapiGenerator = "org.openapitools:openapi-generator-cli:7.23.0"
const mavenDependency = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
const maven = ["mvn", "-q", "-B"] as const
/** Downloads openapi-generator, and makes the client of the language's folder in `client`. */
const generateClient: ReadonlyArray<Command> = [
  [...maven, `${mavenDependency}:copy`, `-Dartifact=${openapiGenerator}`, "-DoutputDirectory=."],
  [
    ...(["java", "-jar", "openapi-generator-cli-7.23.0.jar", "generate"] as const),
    ...["-c", "openapi-generator.yaml", "-i", "openapi.json", "-o", "client"],
  ],
]

/** Svix's own libraries: programs in the folder `svix` that verify a secret and a request on standard input. */
export const svixLibraries: ReadonlyArray<Language & { readonly library: string }> = [
  {
    name: "svix",
    library: "javascript",
    check: [toolPath("tsc"), "--version"],
    prepare: [],
    story: [process.execPath, "verify.mjs"],
  },
  {
    name: "svix",
    library: "python",
    check: ["python3", "-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 10))"],
    prepare: [
      ["python3", "-m", "venv", "venv"],
      [python, "-m", "pip", "install", "--requirement", "requirements.txt"],
    ],
    story: [python, "verify.py"],
  },
  {
    name: "svix",
    library: "go",
    check: ["go", "list", "-m"],
    prepare: [["go", "mod", "download"]],
    story: ["go", "run", "."],
  },
]

export const languages: ReadonlyArray<Language> = [
  {
    name: "typescript",
    check: [toolPath("openapi-typescript"), "--version"],
    prepare: [
      [toolPath("openapi-typescript"), "openapi.json", "-o", "gatehouse.d.ts"],
      [toolPath("tsc"), ...compilerOptions, "story.mts"],
    ],
    story: [process.execPath, "story.mts"],
  },
  {
    name: "python",
    check: pythonCheck,
    prepare: [
      ...pythonPackages,
      // Warnings are of operations that the client would not have.
      [
        "venv/bin/openapi-python-client",
        "generate",
        ...["--path", "openapi.json", "--meta", "none", "--output-path", "gatehouse"],
        ...["--config", "openapi-python-client.yaml", "--fail-on-warning"],
      ],
    ],
    story: [python, "story.py"],
  },
  {
    name: "go",
    check: ["go", "list", "-m"],
    prepare: [
      ["go", "mod", "download"],
      ["go", "tool", "oapi-codegen", "-config", "oapi-codegen.yaml", "openapi.json"],
      ["go", "vet", "./..."],
    ],
    story: ["go", "run", "."],
  },
  {
    name: "java",
    check: ["mvn", "--version"],
    prepare: [
      ...generateClient,
      ["cp", "Story.java", "client/src/main/java/"],
      [...maven, "-f", "client", "compile", `${mavenDependency}:copy-dependencies`, "-DincludeScope=runtime"],
    ],
    story: ["java", "-cp", "client/target/classes:client/target/dependency/*", "Story"],
  },
  {
    name: "typescript-fetch",
    check: ["mvn", "--version"],
    prepare: [
      ...generateClient,
      // Every file of the client. Without --strict, for which the generator does not write.
      [toolPath("tsc"), "-p", "."],
    ],
    story: [process.execPath, "out/story.js"],
  },
  {
    name: "rust",
    check: ["cargo", "--version"],
    prepare: [...generateClient, ["cargo", "build", "--quiet"]],
    story: ["target/debug/story"],
  },
]
