import { Config, Console, Effect, Exit, Option, Queue, Redacted, Schedule, Scope, Struct } from "effect"
import { Command, Flag } from "effect/cli"
import { stoppable } from "../boot/exitCodes.ts"
import { CreateJob } from "../domain/jobs/Job.ts"
import { deadlines } from "../infrastructure/database/deadlines.ts"
import { maxDataBytes, PublishEvent } from "../domain/webhooks/Events.ts"
import { maxTypeLength, reservedWords, typeForm } from "../domain/webhooks/EventPatterns.ts"
import { type Outbox, type OutboxMetrics, type OutboxConnection, startOutbox } from "../sdk/outbox.ts"
import { connection } from "./connection.ts"
import { portFlag, serveLocally } from "./listenCommand.ts"
import { failure, plain, usage } from "./output.ts"
import { group, switchFlag } from "./flags.ts"

const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`
const list = (names: Iterable<string>) => Array.from(names, (name) => `'${name}'`).join(", ")

/** The largest input of a job, in bytes of its text. A request with one job has at most 1 MiB. */
const maxInputBytes = 1000 * 1024

const functions = ["publish", "create_job"]
  .flatMap((name) => [`gatehouse_outbox.${name}(text, json, jsonb)`, `gatehouse_outbox.${name}(varchar, jsonb, jsonb)`])
  .join(", ")

/** What a role may do. A role that writes sees no rows: the functions insert them with the rights of their owner. */
const grants = (role: string, rights: string) => `
GRANT USAGE ON SCHEMA gatehouse_outbox TO ${quoted(role)};
GRANT ${rights} TO ${quoted(role)};`

/** The SQL of the outbox, which can be run again. The functions check what a request is checked for. */
const installation = (writers: ReadonlyArray<string>, relays: ReadonlyArray<string>) => `\
-- The outbox of Gatehouse, for PostgreSQL 13 or newer. Run it again to upgrade it.
BEGIN;

CREATE SCHEMA IF NOT EXISTS gatehouse_outbox;

CREATE TABLE IF NOT EXISTS gatehouse_outbox.messages (
  id bigint GENERATED ALWAYS AS IDENTITY,
  kind text COLLATE "C" NOT NULL CHECK (kind IN ('event', 'job')),
  -- refused: Gatehouse has refused it, as error says. Set it to waiting to send the row again.
  state text COLLATE "C" NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'refused')),
  -- The item of the request, as JSON. Its idempotency key is random, because a restored database uses ids again.
  body text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  error text,
  -- The only index, so that a claim reads the rows of its kind alone, whatever the statistics are.
  PRIMARY KEY (state, kind, id)
);

-- Of an earlier installation.
DROP FUNCTION IF EXISTS gatehouse_outbox.put(text, jsonb, jsonb, text[]), gatehouse_outbox.publish(text, jsonb, jsonb),
  gatehouse_outbox.create_job(text, jsonb, jsonb);

CREATE OR REPLACE FUNCTION gatehouse_outbox.put(kind text, fields text, options jsonb, known text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  unknown text;
  made bigint;
BEGIN
  IF jsonb_typeof(options) IS DISTINCT FROM 'object' THEN
    RAISE invalid_parameter_value USING MESSAGE = 'options must be a JSON object.';
  END IF;
  SELECT name INTO unknown FROM jsonb_object_keys(options) AS name WHERE name <> ALL (known) LIMIT 1;
  IF unknown IS NOT NULL THEN
    RAISE invalid_parameter_value USING
      MESSAGE = format('%s is not an option.', unknown), HINT = 'Options: ' || array_to_string(known, ', ');
  END IF;
  INSERT INTO gatehouse_outbox.messages (kind, body)
  VALUES (kind, left((jsonb_build_object('idempotency_key', 'outbox-' || gen_random_uuid()) || options)::text, -1) || fields || '}')
  RETURNING id INTO made;
  PERFORM pg_notify('gatehouse_outbox', '');
  RETURN made;
END $$;

-- json keeps the text of numbers, which jsonb does not (-0, 1E5). What has no type, as a literal, is taken as json, because
-- PostgreSQL prefers text to varchar.
CREATE OR REPLACE FUNCTION gatehouse_outbox.publish(type text, data json, options jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  IF type IS NULL OR length(type) > ${maxTypeLength} OR type !~ '${typeForm.source}' THEN
    RAISE invalid_parameter_value USING
      MESSAGE = 'type must have segments of letters, digits, _ and - joined by full stops, as in invoice.paid.';
  END IF;
  IF split_part(type, '.', 1) IN (${list([...reservedWords])}) THEN
    RAISE invalid_parameter_value USING MESSAGE = format('%s is a type of Gatehouse: use another first word.', type);
  END IF;
  IF data IS NULL OR octet_length(data::text) > ${maxDataBytes} THEN
    RAISE invalid_parameter_value USING
      MESSAGE = 'data must be JSON of at most ${maxDataBytes / 1024} KiB. It is null as ''null''::jsonb.';
  END IF;
  RETURN gatehouse_outbox.put('event', format(', "type": %s, "data": %s', to_json(type), data), options, ARRAY[
    ${list(Object.keys(Struct.omit(PublishEvent.fields, ["type", "data"])))}
  ]);
END $$;

CREATE OR REPLACE FUNCTION gatehouse_outbox.publish(type varchar, data jsonb, options jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT gatehouse_outbox.publish(type::text, data::text::json, options)
$$;

CREATE OR REPLACE FUNCTION gatehouse_outbox.create_job(
  workflow text, input json DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- In UTF-16 units, as Gatehouse counts: a character beyond the first plane has two.
  IF workflow IS NULL OR workflow = '' OR length(workflow || regexp_replace(workflow, '[\\u0001-\\uffff]', '', 'g')) > 255 THEN
    RAISE invalid_parameter_value USING MESSAGE = 'workflow must have 1 to 255 characters.';
  END IF;
  IF octet_length(input::text) > ${maxInputBytes} THEN
    RAISE invalid_parameter_value USING MESSAGE = 'input must be JSON of at most ${maxInputBytes / 1024} KiB.';
  END IF;
  RETURN gatehouse_outbox.put('job', format(', "workflow": %s', to_json(workflow))
    || coalesce(', "input": ' || input::text, ''), options, ARRAY[
    ${list(Object.keys(Struct.omit(CreateJob.fields, ["workflow", "input", "unique", "debounce_seconds"])))}
  ]);
END $$;

CREATE OR REPLACE FUNCTION gatehouse_outbox.create_job(
  workflow varchar, input jsonb DEFAULT NULL, options jsonb DEFAULT '{}'
) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT gatehouse_outbox.create_job(workflow::text, input::text::json, options)
$$;

REVOKE ALL ON SCHEMA gatehouse_outbox FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA gatehouse_outbox FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA gatehouse_outbox FROM PUBLIC;
${writers.map((role) => grants(role, `EXECUTE ON FUNCTION ${functions}`)).join("")}
${relays.map((role) => grants(role, "SELECT, UPDATE, DELETE ON gatehouse_outbox.messages")).join("")}
COMMIT;`

const roles = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(`${description}; repeat for each`), Flag.between(0, 100))

const install = Command.make(
  "install",
  {
    writer: roles("writer", "A role that may publish events and create jobs"),
    relay: roles("relay", "A role that gatehouse outbox run connects as"),
  },
  ({ relay, writer }) => Console.log(installation(writer, relay)),
).pipe(
  Command.withDescription("Print the SQL that adds the outbox to a PostgreSQL database; psql runs it"),
  Command.withExamples([{ command: "gatehouse outbox install --writer shop | psql $GATEHOUSE_OUTBOX_DATABASE_URL" }]),
)

/** The metrics in the text format of Prometheus. */
const exposition = ({ oldestSeconds, refused, sent, waiting }: OutboxMetrics) =>
  [
    ["waiting_rows", "gauge", "Rows that wait to be sent, counted up to 100,000.", waiting],
    ["oldest_seconds", "gauge", "Age of the oldest row that waits.", oldestSeconds],
    ["refused_rows", "gauge", "Rows that are set aside with an error, counted up to 100,000.", refused],
    ["sent_rows_total", "counter", "Rows that this process has sent.", sent],
  ]
    .map(([name, type, help, value]) => {
      const metric = `gatehouse_outbox_${name}`
      return `# HELP ${metric} ${help}\n# TYPE ${metric} ${type}\n${metric} ${value}\n`
    })
    .join("")

/** Serves the metrics on a loopback port until the scope closes. */
const serveMetrics = (port: number, { metrics }: Outbox) =>
  serveLocally(port, "--metrics-port", (_, response) =>
    metrics().then(
      (all) => response.writeHead(200, { "content-type": "text/plain; version=0.0.4" }).end(exposition(all)),
      () => response.writeHead(503).end("The database does not answer.\n"),
    ),
  ).pipe(Effect.flatMap((own) => Console.error(`Metrics: http://127.0.0.1:${own}/metrics`)))

/** A pool of the relay in GATEHOUSE_OUTBOX_DATABASE_URL, and what wakes the relay until the scope closes. */
const openDatabase = Effect.fnUntraced(function* (connections: number) {
  const url = yield* Effect.orDie(Config.option(Config.Redacted("GATEHOUSE_OUTBOX_DATABASE_URL")))
  if (Option.isNone(url)) {
    return yield* usage(
      "Set GATEHOUSE_OUTBOX_DATABASE_URL to the database that has the outbox: postgres://relay@localhost/shop",
    )
  }
  // Imported here: the other commands start faster without the driver.
  const { describeSqlError, outboxClient } = yield* Effect.promise(
    () => import("../infrastructure/database/PostgresDatabase.ts"),
  )
  const failed = (error: Parameters<typeof describeSqlError>[0]) =>
    failure(`GATEHOUSE_OUTBOX_DATABASE_URL: ${describeSqlError(error)}`)
  const silent = () =>
    failure(`GATEHOUSE_OUTBOX_DATABASE_URL: the database did not answer within ${deadlines.outbox / 1000} s`)
  const sql = yield* Effect.mapError(outboxClient(url.value, connections), failed)
  yield* sql`SELECT 1 FROM gatehouse_outbox.messages LIMIT 0`.pipe(
    Effect.mapError((error) => {
      const { message } = failed(error)
      return failure(`${message}. gatehouse outbox install prints the SQL of the outbox`)
    }),
  )
  const run = Effect.runPromiseWith(yield* Effect.context<never>())
  const connect = async (): Promise<OutboxConnection> => {
    const scope = Scope.makeUnsafe()
    const reserved = await run(Effect.mapError(Scope.provide(sql.reserve, scope), failed))
    return {
      query: async (text, values = []) => ({
        rows: await run(
          Effect.mapError(reserved.execute(text, values, undefined), failed).pipe(
            // Of a silent connection. It is closed, and the next one is new.
            Effect.timeoutOrElse({ duration: deadlines.outbox, orElse: silent }),
          ),
        ),
      }),
      release: () => void run(Scope.close(scope, Exit.void)),
    }
  }
  const wakes = (wake: () => void) =>
    Effect.scoped(
      Effect.flatMap(sql.listen("gatehouse_outbox"), (queue) => {
        wake()
        return Effect.forever(Effect.tap(Queue.take(queue), () => Effect.sync(wake)))
      }),
    ).pipe(Effect.retry(Schedule.spaced("1 second")))
  return { pool: { connect }, wakes }
})

const run = Command.make(
  "run",
  {
    concurrency: Flag.Int("concurrency").pipe(
      Flag.filter(
        (count) => count >= 1 && count <= 20,
        () => "Expected 1 to 20",
      ),
      Flag.withDescription("Batches of events, and of jobs, at the same time, 1 to 20 (default: 1)"),
      Flag.withDefault(1),
    ),
    ordered: switchFlag("ordered", "One relay at a time sends, in the order of the ids"),
    metricsPort: portFlag("metrics-port").pipe(
      Flag.withDescription("Serve metrics for Prometheus on this loopback port"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(
    function* ({ concurrency, metricsPort, ordered }) {
      const { baseUrl, token } = yield* connection
      if (token === undefined) return yield* usage("Set GATEHOUSE_TOKEN to an API key, or use login")
      const { pool, wakes } = yield* openDatabase(2 * concurrency + 2)
      const onError = ({ message }: Error) => process.stderr.write(`gatehouse outbox: ${plain(message)}\n`)
      const outbox = yield* Effect.acquireRelease(
        Effect.sync(() => startOutbox({ baseUrl, key: Redacted.value(token), pool, concurrency, ordered, onError })),
        ({ stop }) => Effect.promise(stop),
      )
      if (Option.isSome(metricsPort)) yield* serveMetrics(metricsPort.value, outbox)
      yield* Console.error(`Sending the outbox to ${baseUrl}. Ctrl+C stops after the batches in flight.`)
      return yield* wakes(outbox.wake)
    },
    Effect.scoped,
    stoppable,
  ),
).pipe(
  Command.withDescription(
    "Send the committed rows of the outbox in GATEHOUSE_OUTBOX_DATABASE_URL, with the API key in GATEHOUSE_TOKEN",
  ),
)

export const outbox = group("outbox", "Events and jobs that commit with rows of your own database", [install, run])
