import { Effect, Layer, Metric } from "effect"
import { ValidationCounter, type ValidationOutcome, type ValidationSource } from "../../domain/keys/KeyLookup.ts"

const series = (outcome: ValidationOutcome, source: ValidationSource) =>
  Metric.counter("gatehouse_key_validations_total", {
    description: "Validations of keys, by outcome and by source: memory or database.",
    incremental: true,
    attributes: { outcome, source },
  })

const bySource = (outcome: ValidationOutcome) => ({
  memory: series(outcome, "memory"),
  database: series(outcome, "database"),
})
const counters = {
  valid: bySource("valid"),
  invalid: bySource("invalid"),
  forbidden: bySource("forbidden"),
  limited: bySource("limited"),
  unavailable: bySource("unavailable"),
}

/** Counts validations without a fiber. Every series exists from the start. */
export const layer = Layer.effect(
  ValidationCounter,
  Effect.map(Effect.context<never>(), (context) => {
    for (const { memory, database } of Object.values(counters)) {
      memory.updateUnsafe(0, context)
      database.updateUnsafe(0, context)
    }
    return (outcome: ValidationOutcome, source: ValidationSource) => counters[outcome][source].updateUnsafe(1, context)
  }),
)
