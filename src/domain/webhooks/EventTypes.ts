import { Context, Data, DateTime, Effect, Layer, Schedule, Schema, Struct } from "effect"
import type { AuditAction, AuditEntry } from "../audit/AuditEntry.ts"
import { AuditLog } from "../audit/AuditLog.ts"
import * as BoundedCache from "../BoundedCache.ts"
import { Conflict, InvalidRequest, LimitReached, NotFound, Unavailable } from "../Errors.ts"
import { type Found, nextCursor, type Page } from "../Page.ts"
import { byteLength } from "../orgs/StoredBytes.ts"
import { currentTenant } from "../Principal.ts"
import { AnyJson, atMost, CreatedAt, cut, NonEmptyText, Text, UpdatedAt } from "../Schemas.ts"
import { EventType } from "./EventPatterns.ts"
import { faultOfSchema, type JsonSchema, type makeBudget, makeCheck, makePatternBudget } from "./jsonSchema.ts"

/** The event types that an org can have in its catalogue. */
export const maxEventTypes = 1_000
const maxVersions = 20
const maxSchemaBytes = 64 * 1024

const versionForm = /^[A-Za-z0-9._-]{1,32}$/
const aSchema = { type: "object", required: ["invoice"], properties: { invoice: { type: "string" } } }
const fields = {
  description: Text.check(atMost(2_000)).annotate({
    description: "What happened, for its receivers: at most 2,000 characters.",
    examples: ["An invoice was paid."],
  }),
  schemas: Schema.Record(Schema.String, AnyJson).annotate({
    description:
      `JSON Schemas (2020-12) of data by version, at most ${maxVersions} of 64 KiB. The newest is the last in the order of its ` +
      "numbers and letters: 10 is after 9.",
    examples: [{ "1": aSchema }],
  }),
  example: AnyJson.annotate({
    description: "Data of such an event, valid for the newest schema, at most 64 KiB. null: none.",
    examples: [{ invoice: "in_42" }],
  }),
  deprecated: Schema.Boolean.annotate({ description: "Whether new receivers are to use another type." }),
  group: NonEmptyText.check(atMost(64)).annotate({
    description: "What it is listed with: at most 64 characters.",
    examples: ["Billing"],
  }),
}

export const CreateEventType = Schema.Struct({
  name: EventType,
  ...Struct.map(fields, Schema.optionalKey),
}).annotate({
  identifier: "CreateEventType",
  examples: [{ name: "invoice.refunded", schemas: { "1": aSchema }, example: { invoice: "in_42" } }],
})

const updateFields = {
  ...CreateEventType.fields,
  description: Schema.optionalKey(Schema.NullOr(fields.description)),
  schemas: CreateEventType.fields.schemas.annotate({
    description: "Versions to add or replace; null removes one. Other versions stay.",
  }),
  group: Schema.optionalKey(Schema.NullOr(fields.group)),
}
export const UpdateEventType = Schema.Struct(updateFields)
  .check(
    Schema.makeFilter(
      ({ schemas = {}, ...update }: { readonly name: string; readonly schemas?: object }) =>
        Object.keys(update).length + Object.keys(schemas).length > 1,
      {
        expected: `name with at least one of ${Object.keys(updateFields).slice(1).join(", ")}`,
        toJsonSchema: () => [{}, true],
      },
    ),
  )
  .annotate({ identifier: "UpdateEventType", examples: [{ name: "invoice.paid", deprecated: true }] })

/** A type of events in the catalogue of an org. */
export const CatalogueType = Schema.Struct({
  name: Schema.String.annotate({ description: "The type of the events.", examples: ["invoice.paid"] }),
  description: Schema.NullOr(fields.description),
  schemas: fields.schemas,
  example: fields.example,
  deprecated: fields.deprecated,
  group: Schema.NullOr(fields.group),
  created_at: CreatedAt,
  updated_at: UpdatedAt,
}).annotate({ identifier: "CatalogueType" })
export interface CatalogueType extends Schema.Schema.Type<typeof CatalogueType> {}

export const eventTypeNotFound = () => new NotFound({ error: "The catalogue has no such event type." })
export const eventTypeExists = () =>
  new Conflict({ error: "The catalogue has this event type. Change it with event-types/update." })
export const tooManyEventTypes = () =>
  new LimitReached({ error: `The catalogue has ${maxEventTypes} event types, the most that it can have. Delete one.` })

/** The catalogue has this version, and not the one that events were checked with. `null`: events need no check. */
export class OtherCatalogue extends Data.TaggedError("OtherCatalogue")<{ readonly version: string | null }> {}

/** The type was changed since it was read. */
export class OtherType extends Data.TaggedError("OtherType")<{}> {}
/** How a change is tried again when another one came first: some 2.5 s in all, in which each of many has its turn. */
const turns = { times: 9, schedule: Schedule.jittered(Schedule.exponential("5 millis")) }
const typeChanges = new Unavailable({ error: "The event type is changing; try again." })

/** What publishing checks against: the catalogue of an org as it was at a version of it. */
interface CatalogueCheck {
  /** `null`: the org does not publish strictly. */
  readonly version: string | null
  /** `undefined`: the catalogue has no such type. */
  readonly schemas: CatalogueType["schemas"] | undefined
}

/** The catalogues of orgs. Each change makes another version of the catalogue of an org that publishes strictly. */
export class EventTypeRepository extends Context.Service<
  EventTypeRepository,
  {
    readonly insert: (
      orgId: string,
      type: CatalogueType,
      entry: AuditEntry,
    ) => Effect.Effect<void, Conflict | LimitReached | Unavailable>
    /** Replaces a type that is still as it was when it was checked, while nothing else can change it. */
    readonly update: (
      orgId: string,
      before: CatalogueType,
      type: CatalogueType,
      entry: AuditEntry,
    ) => Effect.Effect<void, NotFound | OtherType | LimitReached | Unavailable>
    readonly remove: (orgId: string, name: string, entry: AuditEntry) => Effect.Effect<void, NotFound | Unavailable>
    /** In the order of their names. */
    readonly list: (orgId: string, page: Page) => Effect.Effect<Found<CatalogueType>, Unavailable>
    readonly find: (orgId: string, name: string) => Effect.Effect<CatalogueType, NotFound | Unavailable>
    readonly forCheck: (orgId: string, name: string) => Effect.Effect<CatalogueCheck, Unavailable>
  }
>()("gatehouse/domain/webhooks/EventTypeRepository") {}

const inOrder = new Intl.Collator("en", { numeric: true })
/** The newest version of a type, with its schema; `undefined` without schemas. */
const newestOf = (schemas: CatalogueType["schemas"]) => {
  const version = Object.keys(schemas).toSorted(inOrder.compare).at(-1)
  return version === undefined ? undefined : { version, schema: schemas[version] as JsonSchema }
}

const isSmall = (value: unknown) => byteLength(JSON.stringify(value)) <= maxSchemaBytes

/**
 * Fails when a type cannot be in the catalogue. Others have their turn between its schemas.
 *
 * @param given the schemas that were not in the catalogue before
 */
const checkType = Effect.fnUntraced(function* (type: CatalogueType, given: CatalogueType["schemas"]) {
  const patterns = makePatternBudget()
  const refuse = (error: string | undefined) =>
    error === undefined ? Effect.yieldNow : Effect.fail(new InvalidRequest({ error: `${error}.` }))
  if (Object.keys(type.schemas).length > maxVersions) yield* refuse(`schemas must have at most ${maxVersions} versions`)
  for (const [version, schema] of Object.entries(given)) {
    const name = `schemas.${cut(version, 40).toWellFormed()}`
    if (!versionForm.test(version))
      yield* refuse(`${name} must be a version: 1 to 32 letters, digits, full stops, _ and -`)
    yield* refuse(isSmall(schema) ? faultOfSchema(schema, name, patterns) : `${name} must have at most 64 KiB of JSON`)
  }
  if (!isSmall(type.example)) yield* refuse("example must have at most 64 KiB of JSON")
  const newest = newestOf(type.schemas)
  if (newest !== undefined && type.example !== null) yield* refuse(makeCheck(newest.schema)(type.example, "example"))
})

/** The event types that an org describes for its receivers. */
export class EventTypes extends Context.Service<EventTypes>()("gatehouse/domain/webhooks/EventTypes", {
  make: Effect.gen(function* () {
    const repository = yield* EventTypeRepository
    const audit = yield* AuditLog
    const entryOf = (action: AuditAction, { name, schemas = {}, ...fields }: typeof UpdateEventType.Type) =>
      audit.entry({ action, target: name, details: { fields: Object.keys(fields), versions: Object.keys(schemas) } })

    return {
      create: Effect.fn("EventTypes.create")(function* (input: typeof CreateEventType.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const none = { description: null, schemas: {}, example: null, deprecated: false, group: null }
        const type = { ...none, ...input, created_at: now, updated_at: now }
        yield* checkType(type, type.schemas)
        yield* repository.insert(orgId, type, yield* entryOf("event_type.create", input))
      }),

      update: Effect.fn("EventTypes.update")(function* (input: typeof UpdateEventType.Type) {
        const orgId = yield* currentTenant
        const now = yield* DateTime.now
        const withoutNulls = (schemas: CatalogueType["schemas"]) =>
          Object.fromEntries(Object.entries(schemas).filter(([, schema]) => schema !== null))
        const entry = yield* entryOf("event_type.update", input)
        // Checked before the transaction, which holds a connection and the row of the org.
        yield* Effect.gen(function* () {
          const before = yield* repository.find(orgId, input.name)
          const schemas = withoutNulls({ ...before.schemas, ...input.schemas })
          // Later than any change before, whatever clock that had: by it a change meanwhile is seen.
          const updated_at = DateTime.max(now, DateTime.add(before.updated_at, { milliseconds: 1 }))
          const type = { ...before, ...input, schemas, updated_at }
          yield* checkType(type, withoutNulls(input.schemas ?? {}))
          yield* repository.update(orgId, before, type, entry)
        }).pipe(
          Effect.retry({ while: ({ _tag }) => _tag === "OtherType", ...turns }),
          Effect.catchTag("OtherType", () => Effect.fail(typeChanges)),
        )
      }),

      remove: Effect.fn("EventTypes.remove")(function* (name: string) {
        const orgId = yield* currentTenant
        yield* repository.remove(orgId, name, yield* entryOf("event_type.delete", { name }))
      }),

      get: Effect.fn("EventTypes.get")(function* (name: string) {
        return yield* repository.find(yield* currentTenant, name)
      }),

      list: Effect.fn("EventTypes.list")(function* (page: Page) {
        const found = yield* repository.list(yield* currentTenant, page)
        return { event_types: found.items, next_cursor: nextCursor(found, ({ name }) => name) }
      }),
    }
  }),
}) {
  static readonly layer = Layer.effect(this, this.make)
}

const unknownType = (field: string, type: string) =>
  `${field.replace(/data$/, "type")} must be in the catalogue of event types: ${type} is not`

/** Orgs that publish strictly which a process remembers; another one costs a publish that is tried again. */
const maxStrictOrgs = 10_000
/** The memory of checks, in bytes. */
const maxCheckBytes = 32 * 1024 * 1024
/** What a check takes beside five times the text of its schema, and its patterns. */
const checkBytes = 2_000

/**
 * Makes the check of events before they are published. It goes by the version of the catalogue that this process
 * remembers; the statement that publishes compares that with the current one, so that what is checked is what holds.
 */
export const makeStrictCheck = Effect.gen(function* () {
  const repository = yield* EventTypeRepository
  const versions = new Map<string, string>()
  interface TypeCheck {
    readonly version: string | null
    readonly check: ReturnType<typeof makeCheck> | undefined
  }
  const cache = yield* BoundedCache.make<TypeCheck, Unavailable>(maxCheckBytes)

  const read = (orgId: string, type: string) =>
    Effect.map(repository.forCheck(orgId, type), ({ schemas, version }): BoundedCache.Sized<TypeCheck> => {
      const newest = schemas && newestOf(schemas)
      const check = newest && makeCheck(newest.schema)
      const text = newest === undefined ? "" : JSON.stringify(newest.schema)
      const ofType: ReturnType<typeof makeCheck> = (data, name, budget) => {
        const fault = check?.(data, name, budget)
        return fault && `${fault} (the newest schema of ${type})`
      }
      const value = { version, check: schemas && ofType }
      return { value, bytes: checkBytes + 5 * text.length + (text.split("attern").length - 1) * 20_000 }
    })

  const remember = (orgId: string, version: string | null) => {
    versions.delete(orgId)
    if (version !== null) versions.set(orgId, version)
    if (versions.size > maxStrictOrgs) versions.delete(versions.keys().next().value!)
  }

  return {
    /** The version of the catalogue that events are checked with; `null`: they are not. */
    versionOf: (orgId: string) => versions.get(orgId) ?? null,
    remember,
    /** What is wrong with an event by this version. Fails when it turns out that the catalogue has another version. */
    faultOf: Effect.fnUntraced(function* (
      { orgId, version }: { readonly orgId: string; readonly version: string },
      type: string,
      data: unknown,
      field: string,
      budget: ReturnType<typeof makeBudget>,
    ) {
      const isOfVersion = (one: TypeCheck) => one.version === version
      const found = yield* cache.get(orgId, `${orgId} ${type}`, isOfVersion, () => read(orgId, type))
      if (found.version !== version) return yield* new OtherCatalogue({ version: found.version })
      const fault = found.check === undefined ? unknownType(field, type) : found.check(data, field, budget)
      if (fault === undefined) return undefined
      // The statement that publishes compares the version of what passes; here it is what is refused.
      const { version: current } = yield* repository.forCheck(orgId, type)
      return current === version ? `${fault}.` : yield* new OtherCatalogue({ version: current })
    }),
  }
})
