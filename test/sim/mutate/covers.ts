import { appendFileSync } from "node:fs"
import { relative } from "node:path"
import { fileURLToPath } from "node:url"
import { afterEach } from "vitest"
import { Coverage } from "../conversations/coverage.ts"
import { places, repository } from "./places.ts"

/** What a test has run of the places that can be changed. */
export interface Cover {
  readonly file: string
  /** The names of its groups and its own. */
  readonly name: string
  readonly millis: number
  /** Numbers in the order of `places`. */
  readonly places: ReadonlyArray<number>
}

// A process runs many files of tests.
const own = globalThis as { covers?: Promise<readonly [Coverage, ReturnType<typeof placesByFile>]> }

const placesByFile = () => Map.groupBy(places().entries(), ([, { file }]) => file)

own.covers ??= (async () => {
  const coverage = new Coverage()
  await coverage.start()
  return [coverage, placesByFile()] as const
})()
const [coverage, byFile] = await own.covers

afterEach(async ({ task }) => {
  const ran = await coverage.take()
  const cover: Cover = {
    file: relative(repository, task.file.filepath),
    name: task.fullTestName,
    millis: Math.round(performance.now() - (task.result?.startTime ?? 0) + performance.timeOrigin),
    places: [...ran].flatMap(([url, characters]) =>
      (byFile.get(relative(repository, fileURLToPath(url))) ?? [])
        .filter(([, { at }]) => characters[at] === 1)
        .map(([number]) => number),
    ),
  }
  appendFileSync(process.env["COVERS"]!, `${JSON.stringify(cover)}\n`)
})
