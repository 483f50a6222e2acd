/**
 * The deadlines of database operations in milliseconds, the wait for a connection included. Every repository operation
 * has one of them; its statement is canceled after that time. Tests lengthen that of a request on a busy machine.
 */
export const deadlines = {
  /** A read or write that a client waits for. */
  request: 4_000,
  /** One batch of background work. No client waits for it, and it holds one of the pool's ten connections. */
  sweep: 15_000,
  /** The end of a range of old rows: PostgreSQL removes all their files before it answers. */
  drop: 120_000,
  /** A statement of the relay of an outbox, in the database of somebody else. */
  outbox: 60_000,
}
