import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Redacted } from "effect"
import { spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Signer } from "#src/domain/webhooks/Signatures.ts"
import { verifyWebhook } from "#src/sdk/webhooks.ts"
import { signatures } from "#src/infrastructure/crypto/nodeCrypto.ts"
import { hmac } from "../support/hmac.ts"

const page = readFileSync(new URL("../../docs/webhooks.md", import.meta.url), "utf8")
const code = (language: string) => new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "ms").exec(page)![1]!

const body = '{"event":"job.completed","result":"✓ é 😀"}'
const now = Math.floor(Date.now() / 1000)
const signed = (secrets: ReadonlyArray<string>, timestamp = now) =>
  Effect.runSync(
    Signer.use((signer) => signer.prepare(secrets.map((secret) => Redacted.make(secret)))).pipe(
      Effect.map((sign) => sign({ deliveryId: "01KAF8ZJ4V2M6T8Q0R1S2T3V4W", event: "job.completed", body, timestamp })),
      Effect.provide(Layer.provide(Signer.layer, signatures)),
    ),
  )

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
const headers = signed([secret])
const { "webhook-signature": signature, ...unsigned } = headers
const good = { headers, body, secret }
type Case = Omit<typeof good, "headers"> & { readonly headers: Record<string, string> }

/** Whether a webhook is genuine by `webhook-signature`, and by `x-webhook-signature`. */
const cases: ReadonlyArray<readonly [string, Case, readonly [boolean, boolean]]> = [
  ["genuine", good, [true, true]],
  ...["plain", "pässwörd", "whsec_", "whsec_====", "whsec_no base64", "whsec_QQ", "whsec_A"].map(
    (secret) => [`signed with ${secret}`, { ...good, headers: signed([secret]), secret }, [true, true]] as const,
  ),
  ["signed with the old secret too", { ...good, headers: signed(["new", secret]) }, [true, false]],
  [
    "of another version too",
    { ...good, headers: { ...headers, "webhook-signature": `v1a,AA ${signature}` } },
    [true, true],
  ],
  ["of another secret", { ...good, secret: "other" }, [false, false]],
  ["of another body", { ...good, body: body + " " }, [false, false]],
  ["with another id", { ...good, headers: { ...headers, "webhook-id": "x" } }, [false, true]],
  ["with another time", { ...good, headers: { ...headers, "webhook-timestamp": String(now + 5) } }, [false, true]],
  ["too old", { ...good, headers: signed([secret], now - 400) }, [false, true]],
  ["too new", { ...good, headers: signed([secret], now + 400) }, [false, true]],
  ...["soon", "9".repeat(400), "nan", "-1", " "].map(
    (time) =>
      [
        `with the time ${time.slice(0, 4)}`,
        { ...good, headers: { ...headers, "webhook-timestamp": time } },
        [false, true],
      ] as const,
  ),
  ["unsigned", { ...good, headers: unsigned as Record<string, string> }, [false, true]],
  [
    "signed not quite",
    { ...good, headers: { ...headers, "webhook-signature": signature!.slice(0, -1) } },
    [false, true],
  ],
  ["without headers", { ...good, headers: {} }, [false, false]],
]

const has = (command: string, argument: string) => spawnSync(command, [argument]).status === 0

/** Runs a program that reads the cases and prints the verdicts. */
const verdicts = (command: string, args: ReadonlyArray<string>, files: Record<string, string>) => {
  const cwd = mkdtempSync(join(tmpdir(), "gatehouse-docs-"))
  try {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(join(cwd, name, ".."), { recursive: true })
      writeFileSync(join(cwd, name), text)
    }
    const input = JSON.stringify(cases.map(([, webhook]) => webhook))
    const { status, stderr, stdout } = spawnSync(command, args, { cwd, input, encoding: "utf8" })
    assert.strictEqual(status, 0, stderr)
    return cases.map(([name], index) => [name, JSON.parse(stdout)[index]])
  } finally {
    rmSync(cwd, { recursive: true })
  }
}

const expected = cases.map(([name, , verdict]) => [name, verdict])

const python = `import json, sys
from webhooks import verify, verify_body_only

def holds(check, case):
    try:
        check(case["headers"], case["body"].encode(), case["secret"])
        return True
    except ValueError:
        return False

print(json.dumps([[holds(verify, case), holds(verify_body_only, case)] for case in json.load(sys.stdin)]))
`

const go = `package main

import (
	"encoding/json"
	"os"

	"example.com/receiver/webhooks"
)

func main() {
	var cases []struct {
		Headers      map[string]string
		Body, Secret string
	}
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	verdicts := [][2]bool{}
	for _, one := range cases {
		header := func(name string) string { return one.Headers[name] }
		signed := webhooks.Verify(header, []byte(one.Body), one.Secret) == nil
		verdicts = append(verdicts, [2]bool{signed, webhooks.VerifyBodyOnly(header, []byte(one.Body), one.Secret) == nil})
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		panic(err)
	}
}
`

describe("docs/webhooks.md", () => {
  it("shows a webhook with the documented signature", async () => {
    const [head, body] = code("http").trimEnd().split("\n\n")
    const headers = Object.fromEntries(
      head!
        .split("\n")
        .slice(1)
        .map((line) => line.split(": ") as [string, string]),
    )
    const secret = /signed with `([^`]+)`/.exec(page)![1]!
    const { event } = await verifyWebhook({ headers, body: body! }, secret, { toleranceSeconds: Infinity })
    assert.strictEqual(headers["x-webhook-signature"], hmac(secret, body!))
    const fields = [...page.matchAll(/^\| `([a-z_]+)` \|/gm)].map(([, name]) => name)
    assert.deepStrictEqual(Object.keys(event), fields)
  })

  it("has Python code that verifies", ({ skip }) => {
    skip(!has("python3", "--version"), "there is no python3 here")
    assert.deepStrictEqual(
      verdicts("python3", ["main.py"], { "webhooks.py": code("python"), "main.py": python }),
      expected,
    )
  })

  it("has Go code that verifies", ({ skip }) => {
    skip(!has("go", "version"), "there is no go here")
    const files = {
      "go.mod": "module example.com/receiver\n\ngo 1.20\n",
      "main.go": go,
      "webhooks/webhooks.go": code("go"),
    }
    assert.deepStrictEqual(verdicts("go", ["run", "."], files), expected)
  })
})
