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

const python = "venv/bin/python"
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
    check: ["python3", "-c", "import ensurepip, sys; sys.exit(sys.version_info < (3, 10))"],
    prepare: [
      ["python3", "-m", "venv", "venv"],
      [python, "-m", "pip", "install", "--requirement", "requirements.txt"],
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
