// A receiver of webhooks: verifies what arrives and prints it. WEBHOOK_SECRET is the endpoint's signing_secret.
import { createServer } from "node:http"
import { verifyWebhook, WebhookVerificationError } from "../src/webhooks.ts"

const secret = process.env["WEBHOOK_SECRET"] ?? "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
const port = Number(process.env["PORT"] ?? 4000)

const server = createServer((request, response) => {
  const chunks: Array<Buffer> = []
  request.on("data", (chunk: Buffer) => chunks.push(chunk))
  request.on("end", () => {
    try {
      const { deliveryId, event } = verifyWebhook({ headers: request.headers, body: Buffer.concat(chunks), secret })
      process.stdout.write(`verified ${deliveryId}: ${JSON.stringify(event)}\n`)
      response.writeHead(204).end()
    } catch (error) {
      if (!(error instanceof WebhookVerificationError)) throw error
      process.stdout.write(`refused: ${error.message}\n`)
      response.writeHead(400).end(error.message)
    }
  })
})

server.listen(port, "127.0.0.1", () => process.stdout.write(`receiving at http://127.0.0.1:${port}\n`))
