import { layer } from "@effect/vitest"
import * as Races from "./races.ts"
import { deleteAgainstSlowLookUps } from "./keys/slowLookUps.ts"

// A handful of each here; `npm run test:faults` runs them by the thousand, and says how each was seen failing.
layer(Races.layer, { excludeTestServices: true })("races", (it) => {
  for (const [name, race] of Object.entries(Races.races)) it.effect(name, () => Races.run(race, 5))

  it.effect("delete a key, look it up at two replicas", () => deleteAgainstSlowLookUps(50))
})
