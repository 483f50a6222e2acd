import { Session } from "node:inspector/promises"

/** Which characters of the source have run, as V8 counts them by blocks. */
export class Coverage {
  readonly #session = new Session()
  readonly #ran = new Map<string, Uint8Array>()

  async start() {
    this.#session.connect()
    await this.#session.post("Profiler.enable")
    await this.#session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true })
  }

  /** Adds what has run since the last time; returns how many characters of it had never run before. */
  async add() {
    const { result } = await this.#session.post("Profiler.takePreciseCoverage")
    let news = 0
    for (const { functions, url } of result) {
      if (!/\/src\/(domain|infrastructure|http)\//.test(url)) continue
      const ranges = functions.flatMap((one) => one.ranges)
      const length = Math.max(...ranges.map(({ endOffset }) => endOffset))
      const now = new Uint8Array(length)
      // The outer ones first: an inner one says more.
      for (const { count, endOffset, startOffset } of ranges.toSorted(
        (a, b) => a.startOffset - b.startOffset || b.endOffset - a.endOffset,
      ))
        now.fill(count > 0 ? 1 : 0, startOffset, endOffset)
      const before = this.#ran.get(url) ?? new Uint8Array(length)
      for (let n = 0; n < length; n++) {
        if (now[n] === 0 || before[n] === 1) continue
        before[n] = 1
        news++
      }
      this.#ran.set(url, before)
    }
    return news
  }
}
