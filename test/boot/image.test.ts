import { assert, it } from "vitest"
import { spawn } from "node:child_process"
import { once } from "node:events"
import { readFileSync } from "node:fs"

/** Promise (Licences): SIGUSR1 opens no debugger in the image. */

const dockerfile = readFileSync(new URL("../../Dockerfile", import.meta.url), "utf8")
const [, list] = /^ENTRYPOINT (\[.*\])$/m.exec(dockerfile)!
const [node, ...words] = JSON.parse(list!) as ReadonlyArray<string>
const flags = words.filter((word) => word.startsWith("--"))

// Seen failing without the flag: "Debugger listening".
it("the image's process ignores SIGUSR1, and opens no debugger", async () => {
  assert.strictEqual(node, "node")
  const script = `process.stdin.on("end", () => process.exit(7)).resume(); console.log("ready")`
  const child = spawn(process.execPath, [...flags, "-e", script], { stdio: ["pipe", "pipe", "pipe"] })
  let told = ""
  child.stderr.on("data", (piece: Buffer) => (told += piece.toString()))
  const exited = once(child, "exit")
  await once(child.stdout, "data")
  child.kill("SIGUSR1")
  child.stdin.end()
  assert.deepStrictEqual([await exited, told], [[7, null], ""])
})
