import { Effect } from "effect"

/** The pause after a batch. It leaves the database to requests and deliveries for most of the time. */
const pause = "200 millis"

/**
 * Removes rows batch by batch, until a batch is not full. Returns their number.
 *
 * @param size the most rows of a batch
 * @param remove removes up to so many rows, in one statement; returns their number
 */
export const removeInBatches = Effect.fnUntraced(function* <E, R>(
  size: number,
  remove: (size: number) => Effect.Effect<number, E, R>,
) {
  let total = 0
  while (true) {
    const removed = yield* remove(size)
    total += removed
    if (removed < size) return total
    yield* Effect.sleep(pause)
  }
})
