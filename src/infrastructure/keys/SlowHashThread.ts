import { compareSync } from "bcryptjs"
import * as Crypto from "node:crypto"
import { parentPort } from "node:worker_threads"
import { lowerPriority, type ThreadCall, type ThreadReply } from "../workerThread.ts"

/** Whether a key has a slow hash, whose text the import has checked. */
export interface SlowHashTask {
  readonly key: string
  readonly hash: string
}

/** The memory of scrypt with the largest cost that is imported: 128 × N × r bytes, and as much again. */
const maxScryptBytes = 256 * 1024 * 1024

/** The parameters, the salt and the tag of a text of the password hashing competition's format. */
const partsOf = (text: string) => {
  const [, , ...parts] = text.split("$")
  const [tag, salt] = [parts.pop()!, parts.pop()!].map((part) => Buffer.from(part, "base64"))
  const numbers = new Map(
    parts
      .pop()!
      .split(",")
      .map((pair) => pair.split("=") as [string, string]),
  )
  return { tag: tag!, salt: salt!, number: (name: string) => Number(numbers.get(name)) }
}

const verify = ({ hash, key }: SlowHashTask) => {
  if (hash.startsWith("$2")) return compareSync(key, hash)
  const { number, salt, tag } = partsOf(hash)
  if (hash.startsWith("$scrypt$")) {
    const cost = { N: 2 ** number("ln"), r: number("r"), p: number("p"), maxmem: maxScryptBytes }
    return Crypto.timingSafeEqual(Crypto.scryptSync(key, salt, tag.length, cost), tag)
  }
  const cost = { memory: number("m"), passes: number("t"), parallelism: number("p"), tagLength: tag.length }
  return Crypto.timingSafeEqual(Crypto.argon2Sync("argon2id", { message: key, nonce: salt, ...cost }), tag)
}

lowerPriority()
parentPort!.on("message", ({ call, task }: ThreadCall<SlowHashTask>) => {
  let reply: ThreadReply
  try {
    reply = { call, value: verify(task) }
  } catch (error) {
    reply = { call, fault: String(error) }
  }
  parentPort!.postMessage(reply)
})
