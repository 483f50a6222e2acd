import { Session } from "node:inspector/promises"

const isOwn = /\/src\/(domain|infrastructure|http)\//

/** Which characters of the source have run, as V8 counts them by blocks. */
export class Coverage {
  readonly #session = new Session()
  readonly #ran = new Map<string, Uint8Array>()

  async start() {
    this.#session.connect()
    await this.#session.post("Profiler.enable")
    await this.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true })
  }

  /** What has run since the last time: for each file of the source, a one for each character that ran. */
  async take() {
    const { result } = await this.#session.post("Profiler.takePreciseCoverage")
    return new Map(
      result
        .filter(({ functions, url }) => isOwn.test(url) && functions.some((one) => one.ranges[0]!.count > 0))
        .map(({ functions, url }) => {
          const ranges = functions.flatMap((one) => one.ranges)
          const ran = new Uint8Array(Math.max(...ranges.map(({ endOffset }) => endOffset)))
          // The outer ones first: an inner one says more.
          for (const { count, endOffset, startOffset } of ranges.toSorted(
            (a, b) => a.startOffset - b.startOffset || b.endOffset - a.endOffset,
          ))
            ran.fill(count > 0 ? 1 : 0, startOffset, endOffset)
          return [url, ran] as const
        }),
    )
  }

  /** Adds what has run since the last time; returns how many characters of it had never run before. */
  async add() {
    let news = 0
    for (const [url, now] of await this.take()) {
      const before = this.#ran.get(url) ?? new Uint8Array(now.length)
      for (let n = 0; n < now.length; n++) {
        if (now[n] === 0 || before[n] === 1) continue
        before[n] = 1
        news++
      }
      this.#ran.set(url, before)
    }
    return news
  }
}
