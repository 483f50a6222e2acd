import { expect, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { generateKeyPairSync, type KeyObject, sign } from "node:crypto"
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { Webhook } from "standardwebhooks"
import { blocks, exampleId, repository } from "./pages.ts"

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
const body = JSON.stringify({
  event: "job.completed",
  job_id: exampleId,
  nonce: "9f86d081884c7d659a2feaa0c55ad015",
  workflow: "nightly-report",
  deployment_id: null,
  status: "completed",
  result: { rows: 3 },
  error: null,
  mapped_stack: null,
})
const now = new Date()
const headers = {
  "webhook-id": exampleId,
  "webhook-timestamp": String(Math.floor(now.getTime() / 1000)),
  "webhook-signature": new Webhook(secret).sign(exampleId, now, body),
}

const block = (has: string) =>
  blocks.find(({ language, page, text }) => language === "js" && page === "docs/webhooks.md" && text.includes(has))!
    .text

/** A minimal Express that passes the page's receiver to a program, which prints its answers. */
const express = `
let receive
const express = () => ({ post: (path, parser, handler) => (receive = handler) })
express.raw = () => ({})
export default express
export const answer = async (headers, body) => {
  let code
  const response = { status: (given) => ({ send: () => (code = given) }), sendStatus: (given) => (code = given) }
  await receive({ headers, body }, response)
  return code
}`

const program = `
import { answer } from "express"
await import("./receiver.js")
const [secret, body, headers] = ${JSON.stringify([secret, body, headers])}
const bodies = [[headers, body], [headers, body + " "], [{}, body]]
console.log(...(await Promise.all(bodies.map(([headers, body]) => answer(headers, Buffer.from(body))))))
Object.assign(globalThis, { secret, body, headers })
await import("./library.js")
globalThis.body += " "
console.log(await import("./library.js?again").then(() => "taken", () => "refused"))
`

const publicKeyOf = ({ publicKey }: { readonly publicKey: KeyObject }) =>
  `whpk_${Buffer.from(publicKey.export({ format: "jwk" }).x!, "base64url").toString("base64")}`

it("the code for Ed25519 in docs/webhooks.md accepts a genuine webhook, and refuses others", async () => {
  const { href } = new URL(`data:text/javascript,${encodeURIComponent(block("verifyEd25519"))}`)
  const { verifyEd25519 } = (await import(href)) as {
    verifyEd25519: (headers: object, body: Buffer, publicKeys: ReadonlyArray<string>) => void
  }
  const [pair, other] = [generateKeyPairSync("ed25519"), generateKeyPairSync("ed25519")]
  const signed = (timestamp = headers["webhook-timestamp"]) => {
    const signature = sign(null, Buffer.from(`${exampleId}.${timestamp}.${body}`), pair.privateKey).toString("base64")
    const given = { ...headers, "webhook-timestamp": timestamp }
    return { ...given, "webhook-signature": `${headers["webhook-signature"]} v1a,${signature}` }
  }
  const keys = [publicKeyOf(other), publicKeyOf(pair)]
  expect(() => verifyEd25519(signed(), Buffer.from(body), keys)).not.toThrow()
  const refused: ReadonlyArray<Parameters<typeof verifyEd25519>> = [
    [signed(), Buffer.from(`${body} `), keys],
    [signed(), Buffer.from(body), [publicKeyOf(other)]],
    [headers, Buffer.from(body), keys],
    [signed(String(Number(headers["webhook-timestamp"]) - 400)), Buffer.from(body), keys],
    [{}, Buffer.from(body), keys],
  ]
  for (const [headers, body, keys] of refused)
    expect(() => verifyEd25519(headers, body, keys)).toThrow(/no signature matches|too old/)
})

it("the code for Node in docs/webhooks.md accepts a genuine webhook, and refuses others", () => {
  const folder = mkdtempSync(join(tmpdir(), "gatehouse-docs-node-"))
  try {
    const place = (path: string, text: string) => {
      mkdirSync(join(folder, dirname(path)), { recursive: true })
      writeFileSync(join(folder, path), text)
    }
    place("package.json", `{"type":"module"}`)
    place("node_modules/express/package.json", `{"type":"module","exports":"./express.js"}`)
    place("node_modules/express/express.js", express)
    place("node_modules/gatehouse-webhooks/package.json", `{"type":"module","exports":"./index.ts"}`)
    symlinkSync(join(repository, "src/sdk/webhooks.ts"), join(folder, "node_modules/gatehouse-webhooks/index.ts"))
    symlinkSync(join(repository, "node_modules/standardwebhooks"), join(folder, "node_modules/standardwebhooks"))
    place("receiver.js", block("express"))
    place("library.js", block("standardwebhooks"))
    place("main.js", program)
    const env = { PATH: process.env["PATH"], WEBHOOK_SECRET: secret }
    const { stderr, stdout } = spawnSync(process.execPath, ["main.js"], { cwd: folder, env, encoding: "utf8" })
    expect(stdout, stderr).toBe("204 400 400\nrefused\n")
  } finally {
    rmSync(folder, { recursive: true })
  }
})
