import { setTimeout as sleep } from "node:timers/promises"
import { cpuOf } from "./cpu.ts"
import type { Receiver } from "./receiver.ts"
import { medianOf } from "./stats.ts"

/** Something that holds webhooks and sends them. */
export interface Sender {
  /** The process that sends. */
  readonly pid: number
  /** CPU seconds so far of the database behind it. */
  readonly databaseCpu: () => number
  /** Puts in so many, none of which is sent yet. */
  readonly fill: (count: number) => Promise<void>
  /** Lets them go. */
  readonly start: () => Promise<void>
  /** After the last has come: until all outcomes are recorded. */
  readonly stop: () => Promise<void>
}

/** What sending a number of webhooks took. */
export interface Drain {
  /** From the first that came to the last. */
  readonly perSecond: number
  /** CPU microseconds for each: of the sender, and of its database. */
  readonly cpu: number
  readonly databaseCpu: number
  /** How much of one core the receiver took meanwhile, 0 to 1. */
  readonly receiver: number
}

/** How long after the last came its outcome is still counted to the CPU. */
const recording = 500

/** Fills the sender, lets it go, and waits until the receiver has all. */
export const drain = async (sender: Sender, receiver: Receiver, count: number): Promise<Drain> => {
  await sender.fill(count)
  await receiver.reset()
  const cpu = () => [sender.pid, receiver.pid].map(cpuOf).concat(sender.databaseCpu())
  const before = cpu()
  await sender.start()
  const { first, last } = await receiver.until(count)
  await sleep(recording)
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

/** The medians of some rounds. */
export const summary = (rounds: ReadonlyArray<Drain>): Drain => ({
  perSecond: medianOf(rounds, (round) => round.perSecond),
  cpu: medianOf(rounds, (round) => round.cpu),
  databaseCpu: medianOf(rounds, (round) => round.databaseCpu),
  receiver: medianOf(rounds, (round) => round.receiver),
})
