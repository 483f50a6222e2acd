import { spawnSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { exampleId, withIds } from "./pages.ts"

/** A call of a program in a block, with its arguments and the names of the variables that the block set for it. */
export interface Call {
  readonly program: string
  readonly args: ReadonlyArray<string>
  readonly variables: ReadonlyArray<string>
}

/** What a block did. */
export interface Ran {
  readonly status: number | null
  readonly errors: string
  readonly calls: ReadonlyArray<Call>
  /** The variables in `deploy/.env`, if the block wrote one. */
  readonly written: ReadonlyArray<string>
}

/** The environment of a reader before a block. */
const given = {
  KEY: "svc_example",
  GATEHOUSE_TOKEN: "svc_example",
  DATABASE_URL: "postgres://example",
  // What earlier blocks of the tutorial set.
  job: exampleId,
  project: exampleId,
  // Variables of a runner, and of a workflow's `env`.
  ACTIONS_ID_TOKEN_REQUEST_URL: "https://runner.example/token",
  ACTIONS_ID_TOKEN_REQUEST_TOKEN: "example",
  GATEHOUSE: "https://gatehouse.example.com",
}
const ofTheShell = ["PATH", "PWD", "OLDPWD", "SHLVL", "_", "HOME", "CALLS"]

/**
 * Records its name, its arguments and its environment (in one write, because pipes run in parallel), and prints an id.
 */
const standIn = `#!/bin/sh
record=$(printf '%s\\037' "\${0##*/}" "$@"; printf '\\035'; export -p)
printf '%s\\036' "$record" >> "$CALLS"
command -p cat > /dev/null
echo ${exampleId}
`
const real = ["cat", "cp", "sed"]

const callOf = (record: string): Call => {
  const [words, exported] = record.split("\u001d")
  const [program, ...args] = words!.split("\u001f").slice(0, -1)
  const names = [...exported!.matchAll(/^(?:export|declare -x) (\w+)/gm)].map(([, name]) => name!)
  return { program: program!, args, variables: names.filter((name) => !(name in given || ofTheShell.includes(name))) }
}

/**
 * Runs a block of shell commands unchanged, with ids filled in, in an empty folder where each named program is a
 * stand-in. Any other program is an error, and so are a failure and an unset variable.
 */
export const runBlock = (text: string, programs: ReadonlyArray<string>): Ran => {
  const home = mkdtempSync(join(tmpdir(), "gatehouse-docs-"))
  try {
    for (const folder of ["bin", ".ci", "data", "deploy", ".config/fish/completions"]) {
      mkdirSync(join(home, folder), { recursive: true })
    }
    const place = (path: string, script: string) => {
      writeFileSync(join(home, path), script)
      chmodSync(join(home, path), 0o755)
    }
    for (const program of programs) place(program.includes("/") ? program : `bin/${program}`, standIn)
    for (const program of real) place(`bin/${program}`, `#!/bin/sh\ncommand -p ${program} "$@"\n`)
    // Standard error is a socket here, which tee cannot open by its name.
    place("bin/tee", "#!/bin/sh\ncommand -p cat\n")
    writeFileSync(join(home, "data/encryption.key"), "example\n")
    // A file that an earlier block of the README wrote.
    writeFileSync(join(home, "gatehouse.env"), `ADMIN_TOKEN=${exampleId}\nDATABASE_URL=${given.DATABASE_URL}\n`)
    const env = { ...given, PATH: process.env["PATH"], HOME: home, CALLS: join(home, "calls") }
    // The PATH is set inside, so that bash itself is found; fpath is zsh's.
    const inside = `PATH=$1; fpath=(. .); eval "$2"`
    const args = ["-euo", "pipefail", "-c", inside, "bash", join(home, "bin"), withIds(text)]
    const { status, stderr } = spawnSync("bash", args, { cwd: home, env, encoding: "utf8", stdio: ["ignore", "pipe"] })
    const optional = (path: string) => (existsSync(join(home, path)) ? readFileSync(join(home, path), "utf8") : "")
    return {
      status,
      errors: stderr,
      calls: optional("calls").split("\u001e").slice(0, -1).map(callOf),
      written: [...optional("deploy/.env").matchAll(/^(\w+)=/gm)].map(([, name]) => name!),
    }
  } finally {
    rmSync(home, { recursive: true })
  }
}
