import { it, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as Races from "../contract/races.ts"
import { deleteAgainstSlowLookUps } from "../contract/keys/slowLookUps.ts"
import { deleteAgainstValidate, twoReplicas } from "../http/keys/keyRaces.ts"

/** The number of rounds for each pair of writes. */
const times = Number(process.env["RACES"] ?? 100)

layer(Races.layer, { excludeTestServices: true, timeout: 120_000 })(`${times} times each`, (it) => {
  for (const [name, race] of Object.entries(Races.races)) {
    it.effect(name, () => Effect.flatMap(Races.run(race, times), (ends) => Effect.log(name, ends)))
  }

  // Seen failing when the cache kept a read from before a deletion that was notified since (no epoch in KeyCache).
  it.effect("delete a key, look it up at two replicas", () =>
    Effect.flatMap(deleteAgainstSlowLookUps(times * 10), (ends) => Effect.log(ends)),
  )
})

it.live("delete a key, validate it at two replicas", () =>
  Effect.gen(function* () {
    const longest = yield* deleteAgainstValidate(yield* twoReplicas, times * 3)
    yield* Effect.log(`The other replica took ${longest} ms at most`)
  }),
)
