import { assert } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { Jobs } from "#src/domain/jobs/Jobs.ts"
import { JobSchedules } from "#src/domain/jobs/JobSchedules.ts"
import { jobWorker } from "#src/infrastructure/jobs/jobsSql.ts"
import { it } from "../../support/it.ts"
import { unavailable } from "../webhooks/deliveryWorld.ts"

it.effect(
  "handles leases, delayed jobs and schedules every second, and each continues when another fails or hangs",
  function* () {
    const log: Array<string> = []
    let fault: Effect.Effect<never, Effect.Error<typeof unavailable>> | undefined = Effect.die(
      new Error("no such column"),
    )
    let leases = 0
    let delayed = 0
    let schedules = 0
    const services = Layer.mergeAll(
      Layer.mock(Jobs, {
        expireLeases: Effect.suspend(() => (leases++, fault ?? Effect.void)),
        queueDelayed: Effect.suspend(() => (delayed++, fault ?? Effect.void)),
      }),
      Layer.mock(JobSchedules, { runDue: Effect.suspend(() => (schedules++, fault ?? Effect.void)) }),
      Logger.layer([Logger.map(Logger.formatLogFmt, (line) => void log.push(line))]),
    )
    yield* Layer.build(Layer.provide(jobWorker, services))
    yield* TestClock.adjust("2 seconds")
    fault = unavailable
    yield* TestClock.adjust("2 seconds")
    fault = undefined
    yield* TestClock.adjust("2 seconds")
    assert.isAtLeast(leases, 6)
    assert.isAtLeast(delayed, 6)
    assert.isAtLeast(schedules, 6)
    for (const word of ["no such column", "The database cannot be reached"]) {
      assert.isAtLeast(log.filter((line) => line.includes(word)).length, 2, word)
    }
  },
)
