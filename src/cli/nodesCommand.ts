import { Effect, Predicate } from "effect"
import { Command, Flag } from "effect/cli"
import * as Config from "../boot/config.ts"
import { failure, print } from "./output.ts"
import { group, textArgument } from "./flags.ts"

const node = textArgument("node", "The node's name in NODES")

type NodesModule = typeof import("../infrastructure/database/manageNodes.ts")

/** Runs an effect on the databases of the settings. */
const onDatabases = Effect.fnUntraced(function* <A, E, R>(use: (nodes: NodesModule) => Effect.Effect<A, E, R>) {
  const settings = yield* Config.load
  // Imported here: the other commands start faster without the service's modules.
  const [{ Database }, nodes, { describeSqlError }] = yield* Effect.promise(() =>
    Promise.all([
      import("../infrastructure/database/Database.ts"),
      import("../infrastructure/database/manageNodes.ts"),
      import("../infrastructure/database/PostgresDatabase.ts"),
    ]),
  )
  return yield* use(nodes).pipe(
    Effect.mapError((error) =>
      Predicate.isTagged(error, "SqlError")
        ? failure(
            `The database failed: ${describeSqlError(error as unknown as Parameters<typeof describeSqlError>[0])}`,
          )
        : (error as Exclude<E, { readonly _tag: "SqlError" }>),
    ),
    Effect.provide(Database.layer(settings)),
  )
})

/** Opens a node for new orgs, or closes it. */
const setOpen = Effect.fnUntraced(function* (name: string, isOpen: boolean) {
  yield* onDatabases(({ closeNode, openNode }) => (isOpen ? openNode(name) : closeNode(name)))
  yield* print(JSON.stringify({ node: name, open: isOpen }), {
    out: isOpen ? `${name} gets new orgs from now on.` : `${name} gets no new orgs. Its orgs stay there.`,
  })
})

const open = Command.make("open", { node }, ({ node }) => setOpen(node, true)).pipe(
  Command.withDescription(
    "Place new orgs on a node, once all replicas know it; of several, on the one with the fewest",
  ),
)

const close = Command.make("close", { node }, ({ node }) => setOpen(node, false)).pipe(
  Command.withDescription("Place no more new orgs on a node"),
)

/** Moves an org to another database; waits until it works there. */
export const moveOrg = Command.make(
  "move",
  {
    org: textArgument("org", "The id of the org"),
    to: Flag.String("to").pipe(
      Flag.withDescription("The node's name in NODES; platform for the database of DATABASE_URL"),
    ),
  },
  Effect.fnUntraced(function* ({ org, to }) {
    yield* onDatabases((nodes) => Effect.flatten(nodes.moveOrg(org, to)))
    yield* print(JSON.stringify({ org, node: to }), {
      out: `${org} is on ${to}. Its old rows are erased within minutes.`,
    })
  }),
).pipe(
  Command.withDescription(
    "Move an org to another database while it works; the replicas do it, also when this command ends. Reads the environment variables of serve",
  ),
)

export const nodes = group("nodes", "The nodes of NODES; reads the environment variables of serve", [open, close])
