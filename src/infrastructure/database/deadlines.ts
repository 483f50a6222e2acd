/**
 * How long an operation on the database may take, in milliseconds, with the wait for a connection. Every operation of a
 * repository names one of these, and has its statement canceled after that time.
 */
export const deadlines = {
  /** A read or a write that a client waits for. */
  request: 4_000,
  /** One batch of background work: no client waits for it, and it holds one connection of the pool's ten. */
  sweep: 15_000,
} as const

export type Deadline = keyof typeof deadlines
