import { execFileSync } from "node:child_process"
import { createHmac } from "node:crypto"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { expect, it } from "vitest"
import { type SampleLanguage, secretVariable, verifySamples } from "#src/console/pages/webhooks/verifySamples.ts"

/** Promise (Portal) */

const key = Buffer.from("a key of thirty-two bytes, always")
const WEBHOOK_SECRET = `whsec_${key.toString("base64")}`
const body = '{"event":"invoice.paid","data":{"name":"Zoë"}}'
const id = "01KAHBMKZ3D2X7S5QN8W4V6R9T"

const sign = (timestamp: string, bytes = key) =>
  `v1,${createHmac("sha256", bytes).update(`${id}.${timestamp}.${body}`).digest("base64")}`

interface Run {
  readonly file: string
  /** What stands after the sample, and prints true or false for four arguments. */
  readonly main: string
  /** Without it, the language is skipped. */
  readonly tool: string
  readonly build?: readonly [string, ...ReadonlyArray<string>]
  readonly command: readonly [string, ...ReadonlyArray<string>]
}

const runs: Partial<Record<SampleLanguage, Run>> = {
  JavaScript: {
    file: "sample.mjs",
    main: "\nconst [, , ...given] = process.argv\nconsole.log(isGenuine(...given))\n",
    tool: process.execPath,
    command: [process.execPath, "sample.mjs"],
  },
  Python: {
    file: "sample.py",
    main: '\nimport sys\n\n_, a, b, c, body = sys.argv\nprint("true" if is_genuine(a, b, c, body.encode()) else "false")\n',
    tool: "python3",
    command: ["python3", "sample.py"],
  },
  Go: {
    file: "sample.go",
    main: "\n\nfunc main() {\n\ta := os.Args\n\tprintln(IsGenuine(a[1], a[2], a[3], []byte(a[4])))\n}\n",
    tool: "go",
    build: ["go", "build", "-o", "sample", "sample.go"],
    command: ["./sample"],
  },
  Ruby: { file: "sample.rb", main: "\nputs genuine?(*ARGV)\n", tool: "ruby", command: ["ruby", "sample.rb"] },
  PHP: {
    file: "sample.php",
    main: '\necho is_genuine(...array_slice($argv, 1)) ? "true" : "false";\n',
    tool: "php",
    command: ["php", "-n", "sample.php"],
  },
  Java: {
    file: "Main.java",
    main:
      "\nclass Main {\n  public static void main(String[] a) throws Exception {\n" +
      '    System.out.println(Webhooks.isGenuine(a[0], a[1], a[2], a[3].getBytes("UTF-8")));\n  }\n}\n',
    tool: "javac",
    build: ["javac", "-encoding", "UTF-8", "Main.java"],
    command: ["java", "-Dsun.jnu.encoding=UTF-8", "Main"],
  },
}

const exists = (tool: string) => {
  try {
    execFileSync("which", [tool])
    return true
  } catch {
    return false
  }
}

it("every sample has the place of the secret", () => {
  for (const [language, text] of Object.entries(verifySamples)) expect(text, language).toContain(secretVariable)
})

for (const [language, { build, command, file, main, tool }] of Object.entries(runs)) {
  it.skipIf(!exists(tool))(`the sample in ${language} accepts a genuine webhook, and refuses others`, () => {
    const folder = mkdtempSync(join(tmpdir(), "verify-sample-"))
    try {
      const text = verifySamples[language as SampleLanguage].replace("package webhooks", "package main")
      writeFileSync(join(folder, file), text + main)
      const run = ([program, ...args]: readonly [string, ...ReadonlyArray<string>], more: ReadonlyArray<string> = []) =>
        execFileSync(program, [...args, ...more], {
          cwd: folder,
          env: { ...process.env, WEBHOOK_SECRET, LC_ALL: "C.UTF-8" },
          encoding: "utf8",
          stdio: ["ignore", "pipe", "pipe"],
        })
      if (build !== undefined) run(build)
      const now = String(Math.floor(Date.now() / 1000))
      const old = String(Number(now) - 400)
      const long = "9".repeat(400)
      const verdict = (...given: ReadonlyArray<string>) => {
        const [program, ...args] = command
        // Go's println writes to the error output.
        return run(["sh", "-c", 'exec "$0" "$@" 2>&1', program, ...args], given).trim()
      }
      expect({
        genuine: verdict(id, now, sign(now), body),
        "with the signature of an older secret": verdict(
          id,
          now,
          `${sign(now, Buffer.from("old"))} ${sign(now)}`,
          body,
        ),
        "with another body": verdict(id, now, sign(now), body.replace("paid", "void")),
        "of another secret": verdict(id, now, sign(now, Buffer.from("other")), body),
        "too old": verdict(id, old, sign(old), body),
        "without a time": verdict(id, "soon", sign("soon"), body),
        "with a long time": verdict(id, long, sign(long), body),
      }).toEqual({
        genuine: "true",
        "with the signature of an older secret": "true",
        "with another body": "false",
        "of another secret": "false",
        "too old": "false",
        "without a time": "false",
        "with a long time": "false",
      })
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })
}
