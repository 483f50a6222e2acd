import { expect, test } from "vitest"
import { slowness } from "../../support/slowness.ts"
import { compare, recorded } from "./conversation.ts"

/**
 * Promise (Compatibility): What the release has answered in some thousand requests, and sent to receivers, each later
 * version answers and sends. A change that is wanted is written down by `npm run conversations`.
 */
test.each(recorded())(
  "the conversation %s is as it was",
  async (name) => expect(await compare(name)).toBeUndefined(),
  // A world that is given up goes on, and disturbs the next one.
  300_000 * slowness,
)
