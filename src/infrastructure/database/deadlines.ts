/**
 * The deadlines of database operations in milliseconds, the wait for a connection included. Every repository operation has
 * one of them; its statement is canceled after that time.
 */
export const deadlines = {
  /** A read or write that a client waits for. */
  request: 4_000,
  /** One batch of background work. No client waits for it, and it holds one of the pool's ten connections. */
  sweep: 15_000,
} as const

export type Deadline = keyof typeof deadlines
