import { Effect, type Scope } from "effect"
import { Pool } from "pg"
import { type Outbox, type OutboxOptions, startOutbox } from "#src/sdk/outbox.ts"
import { runCli } from "./cli.ts"

/** A pool in a database. Its connections may be cut. */
export const poolOf = (connectionString: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const pool = new Pool({ connectionString })
      pool.on("error", () => {})
      return pool
    }),
    (pool) => Effect.promise(() => pool.end()),
  )

/** Installs the outbox in a database; returns a pool of its owner. */
export const installOutbox = Effect.fnUntraced(function* (url: string, ...flags: ReadonlyArray<string>) {
  const pool = yield* poolOf(url)
  const { out } = yield* runCli(["outbox", "install", ...flags])
  yield* Effect.promise(() => pool.query(out))
  return pool
})

/** A relay for one test, and what it has reported. */
export const relayOf = (
  options: OutboxOptions,
): Effect.Effect<Outbox & { readonly faults: Array<string> }, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const faults: Array<string> = []
      return { ...startOutbox({ onError: ({ message }) => void faults.push(message), ...options }), faults }
    }),
    ({ stop }) => Effect.promise(stop),
  )
