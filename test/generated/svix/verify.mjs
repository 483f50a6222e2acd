// Verifies what standard input has: a secret, and a request's headers and body.
import { readFileSync } from "node:fs"
import { Webhook } from "svix"

const { body, headers, secret } = JSON.parse(readFileSync(0, "utf8"))
new Webhook(secret).verify(body, headers)
