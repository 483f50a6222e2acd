import { Effect, Layer } from "effect"
import { DocsWakeup } from "../../domain/docs/StoredDocs.ts"
import { DocsFetcher } from "../../domain/docs/DocsFetcher.ts"
import { faultPlace } from "../../domain/Errors.ts"

/** How often the documentation of projects is looked through. */
const pollInterval = "5 seconds"

/**
 * Fetches the documentation of projects while there is work, and looks for work when it is woken and every five
 * seconds.
 */
export const layer = Layer.effectDiscard(
  Effect.gen(function* () {
    const { pass } = yield* DocsFetcher
    const { wait } = yield* DocsWakeup
    yield* pass.pipe(
      Effect.catch((error) =>
        Effect.as(Effect.logWarning(`Documentation is not looked through: ${error.error}`), false),
      ),
      Effect.catchDefect((fault) =>
        Effect.as(Effect.logError("Documentation is not looked through", faultPlace(fault)), false),
      ),
      Effect.flatMap((isBusy) => (isBusy ? Effect.void : Effect.race(wait, Effect.sleep(pollInterval)))),
      Effect.forever,
      Effect.forkScoped,
    )
  }),
)
