import { layer } from "@effect/vitest"
import * as Races from "./races.ts"

// A handful of each here; `npm run test:faults` runs them by the thousand.
layer(Races.layer, { excludeTestServices: true })("races", (it) => {
  for (const [name, race] of Object.entries(Races.races)) it.effect(name, () => Races.run(race, 5))
})
