/** The owner of an operation: an org, `noOrg` for requests without one, or `undefined` for background work. */
export type Owner = string | undefined

/** Limits of the connections that are held at one time. */
export interface Shares {
  readonly total: number
  /** Limit of all requests together. The rest is reserved for background work. */
  readonly requests: number
  /** Limit of background work. The rest is reserved for requests. */
  readonly background: number
  /** Limit of one org while no other org waits. The rest of `requests` is free for the next org. */
  readonly org: number
  /** Limit of one org while others wait. */
  readonly orgBesideOthers: number
}

/** The shares of a pool with `total` connections. */
export const sharesOf = (total: number): Shares => ({
  total,
  requests: Math.ceil(total * 0.8),
  background: Math.ceil(total * 0.7),
  org: Math.ceil(total * 0.6),
  orgBesideOthers: Math.floor(total / 3),
})

export interface Ticket {
  readonly owner: Owner
  readonly start: () => void
  state: "waiting" | "holding" | "gone"
}

/**
 * A fair queue in front of the connection pool. An operation within the shares holds a connection at once. Of the waiting
 * owners, the one with the fewest connections is next; owners with equally many take turns.
 */
export const make = (shares: Shares) => {
  // Bounded by the number of connections, and by the limit of waiting requests.
  const held = new Map<Owner, number>()
  const queues = new Map<Owner, Set<Ticket>>()
  let total = 0
  let draining = false

  const holds = (owner: Owner) => held.get(owner) ?? 0

  const othersWait = (owner: string) => queues.size > (queues.has(owner) ? 1 : 0) + (queues.has(undefined) ? 1 : 0)

  const mayHold = (owner: Owner) => {
    if (total >= shares.total) return false
    if (owner === undefined) return holds(owner) < shares.background
    if (total - holds(undefined) >= shares.requests) return false
    return holds(owner) < (othersWait(owner) ? shares.orgBesideOthers : shares.org)
  }

  const hold = (ticket: Ticket) => {
    ticket.state = "holding"
    held.set(ticket.owner, holds(ticket.owner) + 1)
    total++
  }

  const dequeue = (ticket: Ticket) => {
    const queue = queues.get(ticket.owner)!
    queue.delete(ticket)
    // The owner moves to the end, so that owners take turns.
    queues.delete(ticket.owner)
    if (queue.size > 0) queues.set(ticket.owner, queue)
  }

  /** The next ticket. Looks at no more owners than hold a connection, plus one. */
  const next = (): Ticket | undefined => {
    let best: Set<Ticket> | undefined
    let fewest = Infinity
    for (const [owner, queue] of queues) {
      if (holds(owner) >= fewest || !mayHold(owner)) continue
      best = queue
      fewest = holds(owner)
      if (fewest === 0) break
    }
    return best?.values().next().value
  }

  /** Starts waiting operations. Not reentrant, because a started operation may end, and leave, at once. */
  const drain = () => {
    if (draining || queues.size === 0) return
    draining = true
    for (let ticket = next(); ticket !== undefined; ticket = next()) {
      dequeue(ticket)
      hold(ticket)
      ticket.start()
    }
    draining = false
  }

  return {
    /** Requests a connection. The ticket is `holding` at once; otherwise `start` is called later, when it is. */
    enter: (owner: Owner, start: () => void): Ticket => {
      const ticket: Ticket = { owner, start, state: "waiting" }
      const queue = queues.get(owner)
      if (queue !== undefined) queue.add(ticket)
      else if (mayHold(owner)) hold(ticket)
      else queues.set(owner, new Set([ticket]))
      return ticket
    },

    /** Returns the connection, or stops waiting for one. */
    leave: (ticket: Ticket) => {
      if (ticket.state === "waiting") dequeue(ticket)
      if (ticket.state === "holding") {
        const left = holds(ticket.owner) - 1
        if (left === 0) held.delete(ticket.owner)
        else held.set(ticket.owner, left)
        total--
      }
      ticket.state = "gone"
      drain()
    },
  }
}
