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
export class ConnectionShares {
  // Bounded by the number of connections, and by the limit of waiting requests.
  readonly #held = new Map<Owner, number>()
  readonly #queues = new Map<Owner, Set<Ticket>>()
  #total = 0
  #isDraining = false
  readonly #shares: Shares
  constructor(shares: Shares) {
    this.#shares = shares
  }

  /** Requests a connection. The ticket is `holding` at once; otherwise `start` is called later, when it is. */
  enter(owner: Owner, start: () => void): Ticket {
    const ticket: Ticket = { owner, start, state: "waiting" }
    const queue = this.#queues.get(owner)
    if (queue !== undefined) queue.add(ticket)
    else if (this.#mayHold(owner)) this.#hold(ticket)
    else this.#queues.set(owner, new Set([ticket]))
    return ticket
  }

  /** Returns the connection, or stops waiting for one. */
  leave(ticket: Ticket): void {
    if (ticket.state === "waiting") this.#dequeue(ticket)
    if (ticket.state === "holding") {
      const left = this.#heldBy(ticket.owner) - 1
      if (left === 0) this.#held.delete(ticket.owner)
      else this.#held.set(ticket.owner, left)
      this.#total--
    }
    ticket.state = "gone"
    this.#drain()
  }

  #heldBy(owner: Owner) {
    return this.#held.get(owner) ?? 0
  }

  #othersWait(owner: string) {
    return this.#queues.size > (this.#queues.has(owner) ? 1 : 0) + (this.#queues.has(undefined) ? 1 : 0)
  }

  #mayHold(owner: Owner) {
    if (this.#total >= this.#shares.total) return false
    if (owner === undefined) return this.#heldBy(owner) < this.#shares.background
    if (this.#total - this.#heldBy(undefined) >= this.#shares.requests) return false
    return this.#heldBy(owner) < (this.#othersWait(owner) ? this.#shares.orgBesideOthers : this.#shares.org)
  }

  #hold(ticket: Ticket) {
    ticket.state = "holding"
    this.#held.set(ticket.owner, this.#heldBy(ticket.owner) + 1)
    this.#total++
  }

  #dequeue(ticket: Ticket) {
    const queue = this.#queues.get(ticket.owner)!
    queue.delete(ticket)
    // The owner moves to the end, so that owners take turns.
    this.#queues.delete(ticket.owner)
    if (queue.size > 0) this.#queues.set(ticket.owner, queue)
  }

  /** The next ticket. Looks at no more owners than hold a connection, plus one. */
  #next(): Ticket | undefined {
    let best: Set<Ticket> | undefined
    let fewest = Infinity
    for (const [owner, queue] of this.#queues) {
      if (this.#heldBy(owner) >= fewest || !this.#mayHold(owner)) continue
      best = queue
      fewest = this.#heldBy(owner)
      if (fewest === 0) break
    }
    return best?.values().next().value
  }

  /** Starts waiting operations. Not reentrant, because a started operation may end, and leave, at once. */
  #drain() {
    if (this.#isDraining || this.#queues.size === 0) return
    this.#isDraining = true
    for (let ticket = this.#next(); ticket !== undefined; ticket = this.#next()) {
      this.#dequeue(ticket)
      this.#hold(ticket)
      ticket.start()
    }
    this.#isDraining = false
  }
}
