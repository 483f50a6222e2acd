import type { Scenario } from "../support/result.ts"
import { endpoint } from "./bounded/endpoint.ts"
import { receivers } from "./bounded/receivers.ts"

/** The size of one org's data and operations, and their effect on another org. */
export const bounded: Scenario = {
  name: "bounded",
  title: "One org beside another",
  about:
    "An org with very many deliveries or receivers, beside one that finishes a job every 50 ms: from the request that " +
    "finishes it to the arrival of its event. In open mode, which takes the receivers' http urls.",
  quick: { rounds: 1 },
  run: async (scope, options) => {
    const parts = [await endpoint(scope, options), await receivers(scope, options)]
    return {
      tables: parts.flatMap((part) => part.tables),
      bars: parts.flatMap((part) => part.bars),
      notes: parts.flatMap((part) => part.notes),
    }
  },
}
