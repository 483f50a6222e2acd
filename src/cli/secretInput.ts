import { Config, Console, Effect, Option, Redacted, Stdio, Stream } from "effect"
import { Prompt } from "effect/cli"
import { randomBytes } from "node:crypto"
import { counted } from "../domain/plural.ts"
import { usage } from "./output.ts"
import { signingSecretBytes, signingSecretOf, standardKey } from "../domain/webhooks/Signatures.ts"

export const newSecret = Effect.sync(() => Redacted.make(signingSecretOf(randomBytes(signingSecretBytes))))

/**
 * Calls `store` with a signing secret: GATEHOUSE_WEBHOOK_SECRET, the prompt or standard input, else a new
 * one. Prints a new secret on standard error after it is stored. Warns about a short one.
 */
export const withSigningSecret = Effect.fnUntraced(function* <A, E, R>(
  store: (secret: string) => Effect.Effect<A, E, R>,
) {
  const given = yield* readSecret("The signing secret (empty: make a new one)", "GATEHOUSE_WEBHOOK_SECRET")
  const secret = Redacted.value(given ?? (yield* newSecret))
  const bytes = Buffer.byteLength(standardKey(secret))
  if (bytes < signingSecretBytes) {
    yield* Console.error(
      `Warning: the signing secret has ${counted(bytes, "byte")}; Standard Webhooks recommends 24 to 64. Pass no secret to get a new one.`,
    )
  }
  const stored = yield* store(secret)
  if (given === undefined) {
    yield* Console.error(
      `This is the new signing secret. It is shown only once: export GATEHOUSE_WEBHOOK_SECRET=${secret}`,
    )
  }
  return stored
})

/** Sends a job or a schedule. If it has the URL of a callback, the secret of the callback is read or made. */
export const withCallback = <F extends { readonly callback_url?: string | null }, A, E, R>(
  send: (fields: F & { readonly callback_secret?: string }) => Effect.Effect<A, E, R>,
  fields: F,
) =>
  fields.callback_url == null
    ? send(fields)
    : withSigningSecret((callback_secret) => send({ ...fields, callback_secret }))

/**
 * Reads a secret from the environment variable, if it is set; else from a hidden prompt at a terminal; else from
 * standard input. Returns `undefined` if there is none. Never from an argument: arguments appear in the process list
 * and in the shell's history.
 *
 * @param prompt the label of the prompt
 */
export const readSecret = Effect.fnUntraced(function* (prompt: string, variable?: string) {
  if (variable !== undefined) {
    const set = yield* Effect.orDie(Config.option(Config.Redacted(variable)))
    if (Option.isSome(set) && Redacted.value(set.value) !== "") return set.value
  }
  const stdio = yield* Stdio.Stdio
  const text = (yield* stdio.stdinIsTerminal)
    ? Redacted.value(yield* Prompt.run(Prompt.Hidden({ message: `${prompt}:` })))
    : yield* Effect.orDie(Stream.mkString(Stream.decodeText(stdio.stdin)))
  const secret = text.trim()
  // In a loop over a file, standard input is the rest of the file, which is no secret.
  if (/[\r\n]/.test(secret)) {
    const other = variable === undefined ? "" : `, or set ${variable}`
    return yield* usage(`Standard input has several lines, and is read for a secret: pass < /dev/null for none${other}`)
  }
  return secret === "" ? undefined : Redacted.make(secret)
})
