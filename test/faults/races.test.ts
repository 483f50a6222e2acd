import { layer } from "@effect/vitest"
import { Effect } from "effect"
import * as Races from "../contract/races.ts"

/** So many times each pair of writes on one resource. */
const times = Number(process.env["RACES"] ?? 300)

layer(Races.layer, { excludeTestServices: true })(`${times} times each`, (it) => {
  for (const [name, race] of Object.entries(Races.races)) {
    it.effect(name, () => Effect.flatMap(Races.run(race, times), (ends) => Effect.log(name, ends)))
  }
})
