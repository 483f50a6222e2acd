import { layer } from "../support/it.ts"
import * as Races from "./races.ts"
import { deleteAgainstSlowLookUps } from "./keys/slowLookUps.ts"

// Runs each race a few times. `npm run test:faults` runs each a thousand times, and says how each was seen failing.
layer(Races.layer, { excludeTestServices: true })("races", (it) => {
  for (const [name, race] of Object.entries(Races.races)) it.effect(name, () => Races.run(race, 5))

  it.effect("delete a key, look it up at two replicas", () => deleteAgainstSlowLookUps(50))
})
