import { Effect } from "effect"
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const mount = () => {
  const place = mkdtempSync(join(tmpdir(), "gatehouse-disk-"))
  execFileSync("mount", ["-t", "tmpfs", "-o", "size=64m,mode=755", "tmpfs", place], { stdio: "ignore" })
  return place
}
const unmount = (place: string) => {
  execFileSync("umount", ["-l", place])
  rmSync(place, { recursive: true, force: true })
}

/** Whether this process may mount a file system: as root on most machines, but not in every container. */
export const mayMount = (() => {
  try {
    unmount(mount())
    return true
  } catch {
    return false
  }
})()

/** A folder for a tablespace on a file system of 64 MiB in memory, with effects that fill it and free it. */
export const smallDisk = Effect.map(
  Effect.acquireRelease(Effect.sync(mount), (place) => Effect.sync(() => unmount(place))),
  (place) => {
    const folder = join(place, "tablespace")
    mkdirSync(folder)
    execFileSync("chown", ["postgres", folder])
    const filler = join(place, "filler")
    const fill = Effect.sync(() => {
      for (let size = 1024 * 1024; size >= 4096;) {
        try {
          writeFileSync(filler, Buffer.alloc(size), { flag: "a" })
        } catch {
          size /= 2
        }
      }
    })
    return { folder, fill, free: Effect.sync(() => rmSync(filler)) }
  },
)
