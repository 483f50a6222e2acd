import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { freshPostgres } from "../support/databases.ts"
import { it } from "../support/it.ts"
import { installOutbox } from "../support/outbox.ts"
import { type Command, env, isMissing, prepared, pythonCheck, pythonPackages } from "./languages.ts"

const examples = fileURLToPath(new URL("../../examples/outbox", import.meta.url))
const install: Command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
const node = process.execPath

/** How to prepare and run each example, and how to find out that its toolchain is missing. */
const programs: Readonly<Record<string, readonly [check: Command, ...commands: ReadonlyArray<Command>]>> = {
  pg: [["npm", "--version"], install, [node, "place.js"]],
  drizzle: [["npm", "--version"], install, [node, "place.js"]],
  prisma: [["npm", "--version"], install, [node, "node_modules/prisma/build/index.js", "generate"], [node, "place.js"]],
  sqlalchemy: [pythonCheck, ...pythonPackages, ["venv/bin/python", "place.py"]],
  pgx: [
    ["go", "list", "-m"],
    ["go", "mod", "download"],
    ["go", "vet", "."],
    ["go", "run", "."],
  ],
  trigger: [
    ["psql", "--version"],
    ["sh", "-c", 'psql -v ON_ERROR_STOP=1 "$DATABASE_URL" < place.sql'],
  ],
}

for (const [name, [check, ...commands]] of Object.entries(programs)) {
  const from = join(examples, name)
  it.live.skipIf(isMissing(`the outbox with ${name}`, from, check))(
    `${name} commits an order, an event and a job`,
    function* (context) {
      const url = yield* freshPostgres("empty")
      const pool = yield* installOutbox(url)
      const read = (query: string) => Effect.promise(() => pool.query(query).then(({ rows }) => rows))
      yield* read(readFileSync(join(examples, "orders.sql"), "utf8"))
      const cwd = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), `gatehouse-outbox-${name}-`))),
        (folder) => Effect.sync(() => rmSync(folder, { recursive: true, force: true })),
      )
      cpSync(from, cwd, { recursive: true })
      // Prisma generates without its engine, whose host no registry is.
      const variables = { ...env, DATABASE_URL: url, PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true" }
      yield* prepared(context, commands, { cwd, env: variables })
      expect(yield* read("SELECT id::int, customer FROM orders")).toEqual([{ id: 1, customer: "ann" }])
      const rows = yield* read(
        "SELECT body::jsonb - 'idempotency_key' AS body FROM gatehouse_outbox.messages ORDER BY id",
      )
      expect(rows.map(({ body }) => body)).toEqual([
        { type: "order.created", data: { order: 1 } },
        { workflow: "send-email", input: { order: 1 }, priority: 5 },
      ])
    },
  )
}
