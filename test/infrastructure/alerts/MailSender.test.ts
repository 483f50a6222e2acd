import { assert, describe } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { type AddressInfo, createServer } from "node:net"
import { SMTPServer, type SMTPServerOptions } from "smtp-server"
import { MailSender } from "#src/domain/alerts/tellAlert.ts"
import * as Mail from "#src/infrastructure/alerts/MailSender.ts"
import { egressProxyOf } from "#src/infrastructure/net/EgressProxy.ts"
import { selfSigned, trusted } from "../../support/certificate.ts"
import { makeConnectProxy } from "../../support/connectProxy.ts"
import { it } from "../../support/it.ts"
import { closedPort, makeReceiver } from "../../support/receiver.ts"

/**
 * Promise (Alerts): An e-mail goes with TLS, or to loopback; its server is at a checked address, and is given 15
 * seconds and 16 KiB.
 */

interface Arrived {
  readonly secure: boolean
  readonly user: string | undefined
  readonly from: string
  readonly to: ReadonlyArray<string>
  readonly raw: string
}

const password = "p@ss/w:rd"
const credentials = `me:${encodeURIComponent(password)}@`

/** A mail server on loopback that records what arrives. */
const makeServer = (options: SMTPServerOptions = {}) =>
  Effect.gen(function* () {
    const arrived: Array<Arrived> = []
    const commands: Array<string> = []
    const server = new SMTPServer({
      authOptional: true,
      allowInsecureAuth: true,
      logger: false,
      onAuth: ({ password: given, username }, _, done) =>
        given === password ? done(null, { user: username! }) : done(new Error(`Wrong password ${given}`)),
      onMailFrom: ({ address }, _, done) => (commands.push(address), done()),
      onData: (stream, session, done) => {
        const chunks: Array<Buffer> = []
        stream.on("data", (chunk: Buffer) => chunks.push(chunk))
        stream.on("end", () => {
          const { mailFrom, rcptTo } = session.envelope
          arrived.push({
            secure: session.secure,
            user: session.user as string | undefined,
            from: mailFrom === false ? "" : mailFrom.address,
            to: rcptTo.map(({ address }) => address),
            raw: Buffer.concat(chunks).toString(),
          })
          done()
        })
      },
      ...options,
    })
    server.on("error", () => {})
    const port = yield* Effect.acquireRelease(
      Effect.callback<number>((resume) => {
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed((server.server.address() as AddressInfo).port)))
      }),
      () => Effect.callback<void>((resume) => server.close(() => resume(Effect.void))),
    )
    return { arrived, commands, port }
  })

type Options = Parameters<typeof Mail.layer>[0]
const message = {
  from: "gatehouse@example.com",
  to: ["a@example.com", "b@example.com"],
  subject: "Größe: 1",
  text: "one\n.two ñ\n",
}
const send = (url: string, options: Options = { allowPrivateNetworks: true }) =>
  Effect.gen(function* () {
    const sender = Context.get(yield* Layer.build(Mail.layer(options)), MailSender)
    return yield* sender.send({ ...message, url: Redacted.make(url) })
  })

describe("MailSender", () => {
  it.live("sends an e-mail with TLS from the beginning, and with credentials", function* () {
    const tls = yield* trusted({ names: ["localhost"] })
    const { arrived, port } = yield* makeServer({ secure: true, key: tls.key, cert: tls.cert })
    assert.isNull(yield* send(`smtps://${credentials}localhost:${port}`))
    const [mail] = arrived
    const { from, raw, secure, to, user } = mail!
    assert.deepStrictEqual([secure, user, from, to], [true, "me", message.from, message.to])
    assert.include(raw, "Subject: =?UTF-8?")
    assert.include(raw, "To: a@example.com, b@example.com")
    assert.match(raw, /one\r\n\.\.?two =C3=B1|b25lCi50d28gw7EK/)
  })

  it.live("begins TLS with STARTTLS, and sends nothing without a certificate that holds", function* () {
    const good = yield* trusted({ names: ["localhost"] })
    const [trustworthy, other] = [
      yield* makeServer({ key: good.key, cert: good.cert }),
      yield* makeServer(selfSigned({ names: ["localhost"] })),
    ]
    assert.isNull(yield* send(`smtp://${credentials}localhost:${trustworthy.port}`))
    assert.deepInclude(trustworthy.arrived[0], { secure: true, user: "me" })
    const fault = yield* send(`smtp://${credentials}localhost:${other.port}`)
    assert.match(fault ?? "", /^The mail server did not take the e-mail \([A-Z_]+\)\.$/)
    assert.deepStrictEqual([other.arrived, other.commands], [[], []])
  })

  it.live("sends without TLS to a server on loopback alone, and not through a proxy", function* () {
    const { arrived, commands, port } = yield* makeServer({ disabledCommands: ["STARTTLS"] })
    assert.isNull(yield* send(`smtp://127.0.0.1:${port}`))
    assert.deepInclude(arrived[0], { secure: false, user: undefined })
    const proxy = yield* makeConnectProxy()
    const egressProxy = egressProxyOf(proxy.url)
    const fault = yield* send(`smtp://${credentials}127.0.0.1:${port}`, { allowPrivateNetworks: true, egressProxy })
    assert.match(fault ?? "", /^The mail server did not take the e-mail \(/)
    assert.lengthOf(commands, 1)
  })

  it.live("says why, without the words of the server and without what is secret", function* () {
    const { port } = yield* makeServer({ disabledCommands: ["STARTTLS"] })
    const wrong = yield* send(`smtp://me:another@127.0.0.1:${port}`)
    assert.strictEqual(wrong, "The mail server did not take the e-mail (EAUTH, 535).")
    const closed = yield* send(`smtp://${credentials}127.0.0.1:${yield* closedPort}`)
    assert.strictEqual(closed, "The connection was refused (ECONNREFUSED).")
    const refused = yield* send(`smtp://${credentials}127.0.0.1:${port}`, { allowPrivateNetworks: false })
    assert.strictEqual(refused, "The host has an address that is not called (private, reserved or special).")
  })

  it.effect("waits 15 seconds for a server that is silent, and closes its connection", function* () {
    const receiver = yield* makeReceiver({ mute: true })
    const sending = yield* Effect.forkChild(send(`smtp://127.0.0.1:${receiver.port}`))
    yield* receiver.accepted(1)
    yield* TestClock.adjust("15 seconds")
    assert.strictEqual(yield* Fiber.join(sending), "The mail server did not take the e-mail within 15 seconds.")
    yield* receiver.quiet
  })

  it.live("reads no answer without an end", function* () {
    let written = 0
    const server = createServer((socket) => {
      const more = () => {
        while (!socket.destroyed && socket.write("x".repeat(65_536))) written += 65_536
      }
      socket.on("error", () => {}).on("drain", more)
      more()
    })
    const port = yield* Effect.acquireRelease(
      Effect.callback<number>((resume) => {
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed((server.address() as AddressInfo).port)))
      }),
      () => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void))),
    )
    assert.match((yield* send(`smtp://127.0.0.1:${port}`)) ?? "", /^The mail server did not take the e-mail \(/)
    assert.isBelow(written, 64 * 1024 * 1024)
  })
})
