import { Effect, Exit, Option } from "effect"
import type { SqlClient } from "effect/sql"
import type { Unavailable } from "../../domain/Errors.ts"
import type { Found } from "./Batches.ts"
import { answerOrUnavailable, orgMoves } from "./orUnavailable.ts"

/** Runs several changes in one statement, and returns the result of each. */
export type RunTogether<Wanted, A> = (all: ReadonlyArray<Wanted>) => Effect.Effect<ReadonlyMap<Wanted, A>, Unavailable>

/** The exit of a change; `undefined` for a change that the statement did not make. */
type Outcome<A> = Exit.Exit<A | undefined, Unavailable>

/**
 * Runs changes together. When the statement dies, or one of their orgs moves, each runs again alone, so that no change
 * fails because of another.
 */
export const orAlone =
  <Wanted, A>(run: RunTogether<Wanted, A>) =>
  (all: ReadonlyArray<Wanted>): Effect.Effect<ReadonlyMap<Wanted, Outcome<A>>> =>
    Effect.flatMap(Effect.exit(run(all)), (made) => {
      const outcomes = (exit: typeof made, some: ReadonlyArray<Wanted>) =>
        some.map((wanted): readonly [Wanted, Outcome<A>] => [wanted, Exit.map(exit, (found) => found.get(wanted))])
      const isOfOne = Exit.hasDies(made) || Option.getOrUndefined(Exit.findErrorOption(made)) === orgMoves
      if (all.length === 1 || !isOfOne) return Effect.succeed(new Map(outcomes(made, all)))
      return Effect.map(
        Effect.forEach(all, (wanted) => Effect.map(Effect.exit(run([wanted])), (exit) => outcomes(exit, [wanted]))),
        (each) => new Map(each.flat()),
      )
    })

/**
 * Makes a change in the next batch; in a transaction, alone and in that transaction. Returns `undefined` when the
 * statement did not make it.
 *
 * @param batch adds the change to a batch of `orAlone`
 */
export const inBatch = <Wanted, A>(
  sql: SqlClient.SqlClient,
  run: RunTogether<Wanted, A>,
  batch: (wanted: Wanted, done: (found: Found<Outcome<A>, never>) => void) => () => void,
  wanted: Wanted,
) =>
  Effect.flatMap(Effect.serviceOption(sql.transactionService), (transaction) => {
    if (Option.isSome(transaction)) return Effect.map(run([wanted]), (found) => found.get(wanted))
    return answerOrUnavailable<A | undefined, Unavailable>((done) =>
      batch(wanted, (found) => done(Effect.flatMap(found, (outcome) => outcome!))),
    )
  })
