import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { type Lease, lease, type LeaseAsk } from "../../domain/keys/KeyCounter.ts"
import { type CounterId, KeyCounterRepository } from "../../domain/keys/KeyCounterRepository.ts"
import { noOrg, RequestOrg } from "../../domain/orgs/RequestOrg.ts"
import * as Batches from "../database/Batches.ts"
import { answerOrUnavailable, orUnavailable } from "../database/orUnavailable.ts"
import { createMissing, lockCounters, type StoredCounter, writeCounters } from "./counterRows.ts"

interface Question {
  readonly counter: CounterId
  readonly ask: LeaseAsk
}

/** Counters that one transaction locks. */
const maxLeasesPerBatch = 256

/** Answers questions in order. Several may ask the same counter. */
const answer = (
  counters: Map<string, StoredCounter & { readonly now: number }>,
  questions: ReadonlyArray<Question>,
): Map<Question, Lease> => {
  const answers = new Map<Question, Lease>()
  for (const question of questions) {
    const { counterId, orgId } = question.counter
    const stored = counters.get(counterId)
    if (stored?.orgId !== orgId) continue
    const leased = lease(stored.counter, question.ask, stored.now)
    counters.set(counterId, { ...stored, counter: leased.counter })
    answers.set(question, leased.lease)
  }
  return answers
}

/** Counters in PostgreSQL. */
export const layer = Layer.effect(
  KeyCounterRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    const leaseTogether = (questions: ReadonlyArray<Question>) =>
      Effect.gen(function* () {
        const asked = new Map(
          questions.map(({ counter: { counterId: id, orgId } }) => [`${orgId} ${id}`, { orgId, id }] as const),
        )
        const locked = yield* lockCounters(sql, [...asked.values()])
        const counters = new Map(locked.map((stored) => [stored.id, stored]))
        const missing = [...asked.values()].filter(({ id }) => !counters.has(id))
        if (missing.length > 0) {
          yield* createMissing(sql, missing)
          for (const stored of yield* lockCounters(sql, missing)) counters.set(stored.id, stored)
        }
        const answers = answer(counters, questions)
        if (answers.size > 0) yield* writeCounters(sql, [...counters.values()])
        return answers
      }).pipe(
        sql.withTransaction,
        orUnavailable,
        // Counted as a request, not as background work: requests wait for the answer.
        Effect.provideService(RequestOrg, noOrg),
        Effect.withSpan("KeyCounters.lease"),
      )

    const ask = yield* Batches.make(leaseTogether, maxLeasesPerBatch)

    return KeyCounterRepository.of({
      lease: (counter, asked) => answerOrUnavailable((done) => ask({ counter, ask: asked }, done)),
    })
  }),
)
