import { Effect } from "effect"
import { Argument, Command } from "effect/cli"
import * as Config from "../boot/config.ts"
import { CommandFailed, print } from "./output.ts"

const node = Argument.String("node").pipe(Argument.withDescription("The node's name in NODES"))

/** Opens a node for new orgs, or closes it. */
const setOpen = Effect.fnUntraced(function* (name: string, isOpen: boolean) {
  const settings = yield* Config.load
  // Imported here: the other commands start faster without the service's modules.
  const [{ Database }, { closeNode, openNode }, { describeSqlError }] = yield* Effect.promise(() =>
    Promise.all([
      import("../infrastructure/database/Database.ts"),
      import("../infrastructure/database/Nodes.ts"),
      import("../infrastructure/database/PostgresDatabase.ts"),
    ]),
  )
  yield* Effect.gen(function* () {
    yield* isOpen ? openNode(name) : closeNode(name)
  }).pipe(
    Effect.catchTag("SqlError", (error) =>
      Effect.fail(new CommandFailed({ message: `The database failed: ${describeSqlError(error)}` })),
    ),
    Effect.provide(Database.layer(settings)),
  )
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

/** Commands for the databases that have the rows of some orgs. */
export const nodes = Command.make("nodes").pipe(
  Command.withDescription("The nodes of NODES; reads the environment variables of serve"),
  Command.withSubcommands([open, close]),
)
