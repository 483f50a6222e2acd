import { Effect, Layer, Redacted } from "effect"
import type { Socket } from "node:net"
import { unescape } from "node:querystring"
import { MailSender } from "../../domain/alerts/tellAlert.ts"
import { codeOf, connectionFault } from "../net/connectionFault.ts"
import { makeResolveHost, type Opening, pinnedConnection, proxiedConnection } from "../net/connector.ts"
import { foreignTls, tlsName } from "../net/foreignTls.ts"
import type { SafeHttpOptions } from "../net/SafeHttp.ts"

/** The deadline of an e-mail, from the connection to the last answer. */
const timeout = "15 seconds"
/** Bytes of an answer of a mail server. */
const maxResponseBytes = 16 * 1024

type Mail = Parameters<MailSender["Service"]["send"]>[0]

const loopback = /^(?:127\.|::1$|::ffff:127\.)/

/** Submits an e-mail over an open connection. Its fault has no word of the server, which can repeat what was sent. */
const submit = Effect.fnUntraced(function* (socket: Socket, isDirect: boolean, at: URL, mail: Mail) {
  const { createTransport } = yield* Effect.promise(() => import("nodemailer"))
  const secure = at.protocol === "smtps:"
  // The other end of a connection through a proxy is the proxy.
  const isLoopback = isDirect && loopback.test(socket.remoteAddress ?? "")
  const { from, subject, text, to } = mail
  const host = at.hostname.replace(/^\[|\]$/g, "")
  const transport = createTransport({
    host,
    servername: tlsName(host),
    tls: foreignTls,
    secure,
    requireTLS: !secure && !isLoopback,
    ...(at.username === "" ? {} : { auth: { user: unescape(at.username), pass: unescape(at.password) } }),
    getSocket: (_: unknown, done: (error: null, opened: { connection: Socket }) => void) =>
      done(null, { connection: socket }),
    maxResponseSize: maxResponseBytes,
    disableFileAccess: true,
    disableUrlAccess: true,
  } as object)
  yield* Effect.tryPromise({
    try: () => transport.sendMail({ from, to: [...to], subject, text }),
    catch: (error) => {
      const status = (error as { readonly responseCode?: number }).responseCode
      return `The mail server did not take the e-mail (${codeOf(error)}${status === undefined ? "" : `, ${status}`}).`
    },
  })
})

/** Sends e-mails with nodemailer, which is loaded with the first. Addresses are checked as those of webhooks are. */
export const layer = ({ allowPrivateNetworks, egressProxy }: SafeHttpOptions) =>
  Layer.sync(MailSender, () => {
    const checks = { allowPrivateNetworks, resolve: makeResolveHost({ askSystemToo: allowPrivateNetworks }) }
    const open = egressProxy === undefined ? pinnedConnection(checks) : proxiedConnection(egressProxy, checks)

    const send = (mail: Mail) => {
      const at = new URL(Redacted.value(mail.url))
      const port = Number(at.port || (at.protocol === "smtps:" ? 465 : 587))
      const opening: Opening = { isAborted: false, active: undefined }
      const opened = Effect.callback<Socket, string>((resume) =>
        open({ hostname: at.hostname.replace(/^\[|\]$/g, ""), port }, opening, (error, socket) =>
          resume(error === null ? Effect.succeed(socket!) : Effect.fail(connectionFault(error).message)),
        ),
      )
      const close = Effect.sync(() => {
        opening.isAborted = true
        opening.active?.destroy()
      })
      return Effect.flatMap(opened, (socket) => submit(socket, egressProxy === undefined, at, mail)).pipe(
        Effect.ensuring(close),
        Effect.timeoutOrElse({
          duration: timeout,
          orElse: () => Effect.fail(`The mail server did not take the e-mail within ${timeout}.`),
        }),
        Effect.match({ onSuccess: () => null, onFailure: (fault) => fault }),
      )
    }
    return MailSender.of({ send: (mail) => Effect.suspend(() => send(mail)) })
  })
