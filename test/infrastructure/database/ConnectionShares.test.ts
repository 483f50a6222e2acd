import { assert, it } from "@effect/vitest"
import { ConnectionShares, type Owner, sharesOf, type Ticket } from "#src/infrastructure/database/orUnavailable.ts"

/** A queue in front of ten connections, and the number of connections of an owner. */
const pool = () => {
  const shares = new ConnectionShares(sharesOf(10))
  const tickets: Array<Ticket> = []
  const ask = (owner: Owner, times = 1) => {
    for (let n = 0; n < times; n++) tickets.push(shares.enter(owner, () => {}))
  }
  const held = (owner: Owner) => tickets.filter((ticket) => ticket.owner === owner && ticket.state === "holding")
  const end = (owner: Owner) => shares.leave(held(owner)[0]!)
  return { shares, tickets, ask, held: (owner: Owner) => held(owner).length, end }
}

it("one org may have six of ten connections; a second gets one at once, and three while both wait", () => {
  const { ask, end, held } = pool()
  ask("a", 40)
  assert.strictEqual(held("a"), 6)
  ask("b")
  assert.strictEqual(held("b"), 1)
  ask("b", 39)
  assert.strictEqual(held("b"), 2)
  for (let n = 0; n < 3; n++) end("a")
  assert.deepStrictEqual([held("a"), held("b")], [3, 3])
  // The connections that both leave free are for the next owner.
  ask("c")
  assert.strictEqual(held("c"), 1)
})

it("the owner with the fewest connections is next, and equal owners take turns", () => {
  const { ask, end, held } = pool()
  ask("a", 40)
  ask("b", 40)
  ask("c", 5)
  ask("d", 5)
  assert.deepStrictEqual([held("a"), held("b"), held("c"), held("d")], [6, 2, 0, 0])
  for (let n = 0; n < 4; n++) end("a")
  assert.deepStrictEqual([held("a"), held("b"), held("c"), held("d")], [2, 2, 2, 2])
})

it("background work has two connections of its own, and leaves three to requests", () => {
  const { ask, held } = pool()
  for (const org of ["a", "b", "c", "d"]) ask(org, 40)
  ask(undefined, 20)
  assert.strictEqual(held(undefined), 2)
  const idle = pool()
  idle.ask(undefined, 20)
  idle.ask("a", 20)
  assert.deepStrictEqual([idle.held(undefined), idle.held("a")], [7, 3])
})

it("an interrupted request does not start, and a single org has its whole share again", () => {
  const { ask, end, held, shares, tickets } = pool()
  ask("a", 8)
  ask("b", 8)
  while (held("a") > 3) end("a")
  const [left] = tickets.filter(({ owner, state }) => owner === "b" && state === "waiting")
  shares.leave(left!)
  for (const ticket of tickets.filter(({ owner }) => owner === "a")) shares.leave(ticket)
  assert.strictEqual(left!.state, "gone")
  assert.strictEqual(held("b"), 6)
  while (held("b") > 0) end("b")
  assert.isTrue(tickets.every(({ state }) => state === "gone"))
})

it("an operation that ends as it starts does not grow the stack", () => {
  const shares = new ConnectionShares(sharesOf(1))
  let done = 0
  const first = shares.enter("a", () => {})
  const tickets: Array<Ticket> = []
  for (let n = 0; n < 10_000; n++) {
    tickets.push(
      shares.enter("a", () => {
        done++
        shares.leave(tickets[n]!)
      }),
    )
  }
  shares.leave(first)
  assert.strictEqual(done, 10_000)
})
