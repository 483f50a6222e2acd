import type { Found, Scenario } from "../support/result.ts"
import { claims } from "./growth/claims.ts"
import { keys } from "./growth/keys.ts"
import { memory } from "./growth/memory.ts"
import { ownRows } from "./growth/ownRows.ts"
import { projects } from "./growth/projects.ts"
import { starts } from "./growth/starts.ts"

/** How the figures change as the tables grow, and what a process takes. */
export const growth: Scenario = {
  name: "growth",
  title: "Growth",
  about: "The same operations beside little and beside much, services and databases side by side, round by round.",
  run: async (scope, options) => {
    const parts: Array<Found> = []
    for (const part of [keys, claims, projects, ownRows, memory, starts]) parts.push(await part(scope, options))
    return {
      tables: parts.flatMap((part) => part.tables),
      bars: parts.flatMap((part) => part.bars),
      notes: [
        "Growth is the median over the rounds of what an operation takes of the processor, service and PostgreSQL " +
          "together, beside the most, over the same beside the least.",
        ...parts.flatMap((part) => part.notes),
      ],
    }
  },
}
