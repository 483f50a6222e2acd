import { setTimeout as sleep } from "node:timers/promises"
import { cpuOf } from "./cpu.ts"
import type { Receiver } from "./receiver.ts"
import { medianOf } from "./stats.ts"

/** A program that stores webhooks and sends them. */
export interface Sender {
  /** The process that sends. */
  readonly pid: number
  /** CPU seconds so far of its database. */
  readonly databaseCpu: () => number
  /** Inserts this many webhooks without sending them. */
  readonly fill: (count: number) => Promise<void>
  /** Starts to send. */
  readonly start: () => Promise<void>
  /** After the last arrival: waits until all outcomes are recorded. */
  readonly stop: () => Promise<void>
}

/** The cost of sending a number of webhooks. */
export interface Drain {
  /** From the first arrival to the last. */
  readonly perSecond: number
  /** CPU microseconds for each webhook, of the sender and of its database. */
  readonly cpu: number
  readonly databaseCpu: number
  /** The share of one core that the receiver used meanwhile, 0 to 1. */
  readonly receiver: number
}

/** How long after the last arrival the CPU time still counts, in milliseconds. */
const recordingMillis = 500

/** Fills the sender, starts it, and waits until the receiver has everything. */
export const drain = async (sender: Sender, receiver: Receiver, count: number): Promise<Drain> => {
  await sender.fill(count)
  await receiver.reset()
  const cpu = () => [sender.pid, receiver.pid].map(cpuOf).concat(sender.databaseCpu())
  const before = cpu()
  await sender.start()
  const { first, last } = await receiver.until(count)
  await sleep(recordingMillis)
  const [own, receiving, database] = cpu().map((seconds, at) => seconds - before[at]!)
  await sender.stop()
  const seconds = (last - first) / 1000
  return {
    perSecond: (count - 1) / seconds,
    cpu: (own! / count) * 1e6,
    databaseCpu: (database! / count) * 1e6,
    receiver: receiving! / seconds,
  }
}

/** The medians of several rounds. */
export const summary = (rounds: ReadonlyArray<Drain>): Drain => ({
  perSecond: medianOf(rounds, (round) => round.perSecond),
  cpu: medianOf(rounds, (round) => round.cpu),
  databaseCpu: medianOf(rounds, (round) => round.databaseCpu),
  receiver: medianOf(rounds, (round) => round.receiver),
})
