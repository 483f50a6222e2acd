import { Context, Effect, Option, Predicate, type Schema, SchemaAST } from "effect"
import { Argument, Command, type Param } from "effect/cli"
import { type HttpApiClient, type HttpApiEndpoint, OpenApi } from "effect/http-api"
import { Api } from "../http/api/Api.ts"
import { Callers } from "../http/api/access.ts"
import type { Client } from "../sdk/client.ts"
import { call, callPages, FieldWords, type ListPage, resolveOrg } from "./callOperation.ts"
import {
  clearFlag,
  flagNameOf,
  flagOf,
  given,
  helpOf,
  isOptional,
  kebab,
  orgFlag,
  page,
  switchFlag,
  type PageFlags,
  wholeList,
} from "./flags.ts"
import { CommandFailed, type Output, plain, type Table, usage } from "./output.ts"

type Groups = (typeof Api)["groups"]

/** The name of an operation: `jobs.cancel`. */
type OperationName = {
  readonly [G in keyof Groups]: `${G}.${keyof Groups[G]["endpoints"] & string}`
}[keyof Groups]

type EndpointOf<N> = N extends `${infer G extends keyof Groups}.${infer O}`
  ? O extends keyof Groups[G]["endpoints"]
    ? Groups[G]["endpoints"][O]
    : never
  : never

/** The fields of a part of a request; none of one that is absent, or has no names. */
type PartOf<S extends Schema.Constraint> = string extends keyof Exclude<S["Type"], undefined>
  ? object
  : Exclude<S["Type"], undefined> & object

/** The fields of the path, the query and the body of an operation. */
type FieldsOf<N> =
  EndpointOf<N> extends HttpApiEndpoint.ConstraintRequest
    ? PartOf<EndpointOf<N>["~Params"]> & PartOf<EndpointOf<N>["~Query"]> & PartOf<EndpointOf<N>["~Payload"]>
    : never

/** The body of the response of an operation. */
type BodyOf<N> =
  EndpointOf<N> extends HttpApiEndpoint.Constraint ? HttpApiClient.SuccessType<EndpointOf<N>["~Success"]> : never

type Parameters = Readonly<Record<string, Param.Any>>

type Sent<A> = ReturnType<typeof call<A, unknown, never>>

interface Options<N extends OperationName, M extends Parameters, O extends keyof FieldsOf<N>, E, R> {
  /** The name of the command. Default: that of the operation. */
  readonly name?: string
  /** What the command does. Default: the summary of the operation, and the first sentence about it. */
  readonly about?: string
  readonly examples?: ReadonlyArray<string>
  /** The arguments in their order, and the fields that they set: `{ job: "job_id" }`. */
  readonly args?: Readonly<Record<string, keyof FieldsOf<N> & string>>
  /** The names of flags that are not those of their fields. */
  readonly flags?: { readonly [F in keyof FieldsOf<N>]?: string }
  /** Fields that are no flags: they stay absent, or `run` sets them. */
  readonly omit?: ReadonlyArray<O>
  /** The values of fields that are required, in a command without their flags. */
  readonly defaults?: { readonly [F in keyof FieldsOf<N>]?: FieldsOf<N>[F] }
  /** Of the fields in `omit`: those that `--clear` takes, because `run` sets them. */
  readonly clearable?: ReadonlyArray<O>
  /** The group that has the operation for every org, without an org: `--all-orgs` is an operation of that group. */
  readonly ofAllOrgs?: keyof Groups
  /** Flags and arguments that set no field. They are for `run`. */
  readonly more?: M
  /** What the command does before and after it sends the request. Default: nothing. */
  readonly run?: (
    send: (fields: FieldsOf<N>) => Sent<BodyOf<N>>,
    fields: Omit<FieldsOf<N>, O>,
    more: Command.Command.Config.InferValue<M>,
  ) => Effect.Effect<unknown, E, R>
}

/** What is printed: of a paged list its table; else a table, an output with a note, or only a sentence. */
type ShowOf<N> = "cursor" extends keyof FieldsOf<N>
  ? { readonly show: (body: BodyOf<N>, fields: FieldsOf<N>) => Table }
  : {
      /** Default: what the service says. */
      readonly show?: (body: BodyOf<N>, fields: FieldsOf<N>) => Output
    }

/** Flags that have a shorter name than their field: what they name by its id. */
const shortNames: Readonly<Record<string, string>> = {
  orgId: "org",
  projectId: "project",
  webhook_endpoint_id: "endpoint",
  job_id: "job",
  event_id: "event",
  event_type: "type",
}

const fieldsOf = (ast: SchemaAST.AST | undefined): ReadonlyMap<string, SchemaAST.AST> =>
  new Map(
    ast !== undefined && SchemaAST.isObjects(ast)
      ? ast.propertySignatures.map(({ name, type }) => [String(name), type])
      : [],
  )

/** The parts of a request that an operation has, and their fields. */
const partsOf = ({ params, payload, query }: HttpApiEndpoint.Top) => {
  const [body] = Array.from(payload.values(), ({ schemas }) => schemas[0])
  return Object.entries({ params, query, payload: body }).flatMap(([part, schema]) =>
    schema === undefined ? [] : [{ part, fields: fieldsOf(schema.ast) }],
  )
}

/** The summary of an operation; and with it whether only the administrator may, and the first sentence about it. */
const textsOf = ({ annotations }: HttpApiEndpoint.Top) => {
  const summary = Context.getOrUndefined(annotations, OpenApi.Summary) ?? ""
  const [, first] = /^(.*?)\.(?: |$)/s.exec(Context.getOrUndefined(annotations, OpenApi.Description) ?? "") ?? []
  const who = Context.get(annotations, Callers).join() === "administrator" ? "; needs the administrator's token" : ""
  return { summary, text: summary + who + (first === undefined ? "" : `. ${first}`) }
}

const argumentOf = (name: string, ast: SchemaAST.AST): Argument.Argument<Option.Option<unknown>> => {
  const text = Argument.String(name).pipe(Argument.withDescription(helpOf(ast) ?? name))
  return isOptional(ast) ? Argument.optional(text) : Argument.map(text, Option.some)
}

/** The operation of a group of the client, whose types are those of `FieldsOf` and `BodyOf`. */
const methodOf = <N extends OperationName>(group: Client[keyof Client], identifier: string) =>
  (group as unknown as Record<string, (request: object) => Effect.Effect<BodyOf<N> & ListPage, unknown>>)[identifier]!

const orList = new Intl.ListFormat("en-GB", { type: "disjunction" })

/** What the service says of a change. */
const saidBy = (body: unknown) => (Predicate.hasProperty(body, "message") ? plain(String(body.message)) : "")

const allOrgsFlag = switchFlag("all-orgs", "Those of the administrator, which watch every org")

/** The command of an operation: its flags, their help and its own are those of the API's definition. */
export const op = <
  const N extends OperationName,
  M extends Parameters = {},
  O extends keyof FieldsOf<N> = never,
  E = CommandFailed,
  R = Effect.Services<Sent<unknown>>,
>(
  operation: N,
  {
    about,
    args = {},
    clearable = [],
    defaults = {},
    examples = [],
    flags = {},
    more,
    name,
    ofAllOrgs,
    omit = [],
    run,
    show = saidBy,
  }: Options<N, M, O, E, R> & ShowOf<N>,
) => {
  const [group, identifier] = operation.split(".") as [keyof Groups, string]
  const endpoints: Readonly<Record<string, HttpApiEndpoint.Top>> = Api.groups[group].endpoints
  const endpoint = endpoints[identifier]!
  const parts = partsOf(endpoint)
  const all = new Map(parts.flatMap(({ fields }) => [...fields]))
  const path = parts.find(({ part }) => part === "params")?.fields
  // The fields of a filter are flags like the others.
  const filter = fieldsOf(all.get("filter"))
  const named: ReadonlyArray<string> = Object.values(args)
  const [argument] = Object.keys(args)
  // --org has the org of the path, or it is the only one.
  const isOfOrg = path?.has("orgId") === true && ![...named, ...omit].includes("orgId")
  const isPaged = all.has("cursor")
  const isChange = identifier === "update" || identifier === "rotate"

  const taken = new Set<string>([
    ...named,
    ...omit.map(String),
    ...(isOfOrg ? ["orgId"] : []),
    ...(isPaged ? ["limit", "cursor"] : []),
    ...(filter.size > 0 ? ["filter"] : []),
  ])
  const settable = new Map([...all].filter(([field]) => !taken.has(field)))
  const clearables = new Map([...all].filter(([field]) => settable.has(field) || clearable.map(String).includes(field)))
  const names: Readonly<Record<string, string | undefined>> = { ...shortNames, ...flags }
  const nameOf = (field: string, ast: SchemaAST.AST) => names[field] ?? flagNameOf(field, ast)
  const flagsOf = (fields: ReadonlyMap<string, SchemaAST.AST>) =>
    Object.fromEntries(
      Array.from(fields, ([field, ast]) => {
        const isDefaulted = Object.hasOwn(defaults, field)
        return [field, flagOf(nameOf(field, ast), ast, isDefaulted || isOptional(ast))]
      }),
    )
  const hints = Array.from(settable, ([field, ast]) => `--${nameOf(field, ast)}`).slice(0, 3)
  const words = new Map([
    ...Object.keys(more ?? {}).map((field) => [field, `--${kebab(field)}`] as const),
    ...Array.from(settable, ([field, ast]) => [field, `--${nameOf(field, ast)}`] as const),
    ...Array.from(filter, ([field, ast]) => [`filter.${field}`, `--${nameOf(field, ast)}`] as const),
    ...Object.entries(args).map(
      ([argument, field]) =>
        [field, `the ${argument.replace(/-id$/, "")}${/id$/i.test(field) ? "'s id" : ""}`] as const,
    ),
  ])

  /** Sends the request, each field in its part, and prints the response. */
  const sendWith =
    (at: keyof Groups, page: PageFlags | {}, cleared: object) =>
    (fields: FieldsOf<N>): Sent<BodyOf<N>> => {
      const both = Object.entries(fields).find(([field, value]) => value !== null && Object.hasOwn(cleared, field))
      if (both !== undefined) return usage(`${both[0]} is cleared and set: do one of them`)
      const stray = Object.keys(fields).find((field) => !all.has(field))
      if (stray !== undefined) return Effect.die(new Error(`${operation} has no field ${stray}`))
      const isChanged = Object.keys(fields).some((field) => !path?.has(field) && !named.includes(field))
      if (identifier === "update" && !isChanged)
        return usage(`Nothing to change: set ${hints.join(", ")} or another setting`)
      const requestOf = (all: object) =>
        Object.fromEntries(
          parts.map(({ fields, part }) => [
            part,
            Object.fromEntries(Object.entries(all).filter(([name]) => fields.has(name))),
          ]),
        )
      const ask = (client: Client, page: object) =>
        methodOf<N>(client[at], identifier)(requestOf({ ...fields, ...page }))
      const shown = (body: BodyOf<N> & ListPage) => show(body, fields)
      return "all" in page
        ? callPages(
            page,
            ask,
            // By `ShowOf`.
            shown as (body: BodyOf<N> & ListPage) => Table,
          )
        : call((client) => ask(client, {}), shown)
    }

  const { summary, text } = textsOf(endpoint)
  return Command.make(
    name ?? (identifier === "remove" ? "delete" : kebab(identifier)),
    {
      named: Object.fromEntries(
        Object.entries(args).map(([argument, field]) => [field, argumentOf(argument, all.get(field)!)]),
      ),
      org: isOfOrg ? { orgId: orgFlag } : {},
      every: ofAllOrgs === undefined ? {} : { allOrgs: allOrgsFlag },
      fields: flagsOf(settable),
      filter: flagsOf(filter),
      clear: isChange ? clearFlag(clearables) : {},
      page: isPaged ? (isOptional(all.get("limit")!) ? wholeList : page) : {},
      more: more ?? ({} as M),
    },
    Effect.fnUntraced(
      function* (input) {
        const [named, filtered] = [given(input.named), given(input.filter)]
        const cleared = "clear" in input.clear ? input.clear.clear : {}
        const isNamed = Object.keys(named).length > 0
        const isFiltered = Object.keys(filtered).length > 0
        // An argument that is forgotten, or a variable that is not set, does not select everything.
        if (filter.size > 0 && argument !== undefined && !isNamed && !isFiltered) {
          const flags = Array.from(filter, ([field, ast]) => `--${nameOf(field, ast)}`)
          return yield* usage(`Name the ${argument}, or select with ${orList.format(flags)}`)
        }
        const isOfAll = "allOrgs" in input.every && input.every.allOrgs
        const fields = {
          ...named,
          ...("orgId" in input.org && !isOfAll ? { orgId: yield* resolveOrg(input.org.orgId) } : {}),
          ...cleared,
          ...defaults,
          ...given(input.fields),
          ...(isFiltered || (filter.size > 0 && !isNamed) ? { filter: filtered } : {}),
        } as FieldsOf<N>
        const send = sendWith(isOfAll ? ofAllOrgs! : group, input.page, cleared)
        return yield* run === undefined ? send(fields) : run(send, fields, input.more)
      },
      Effect.provideService(FieldWords, words),
    ),
  ).pipe(
    Command.withDescription(about ?? text),
    Command.withShortDescription(about ?? summary),
    Command.withExamples(examples.map((command) => ({ command: `gatehouse ${command}` }))),
  )
}
