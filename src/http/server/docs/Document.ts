import { type JsonSchema, mapValues, type Schemas } from "../../api/openapi/JsonSchema.ts"

export interface Media {
  readonly schema: JsonSchema
  readonly example?: unknown
}
export type Content = Readonly<Record<string, Media>>
export interface Parameter {
  readonly name: string
  readonly in: string
  readonly required?: boolean
  readonly description?: string
  readonly schema: JsonSchema
}
export interface Response {
  readonly $ref?: string
  readonly description?: string
  readonly content?: Content
}
export interface Operation {
  readonly operationId: string
  readonly tags: ReadonlyArray<string>
  readonly summary: string
  readonly description: string
  readonly security?: ReadonlyArray<Readonly<Record<string, unknown>>>
  readonly parameters: ReadonlyArray<Parameter>
  readonly requestBody?: { readonly content: Content }
  readonly responses: Readonly<Record<string, Response>>
}
type Paths = Readonly<Record<string, Readonly<Record<string, Operation>>>>

/** The OpenAPI document, as far as the page shows it. */
export interface Document {
  readonly info: { readonly title: string; readonly version: string; readonly description: string }
  readonly servers: ReadonlyArray<{ readonly url: string }>
  readonly tags: ReadonlyArray<{ readonly name: string; readonly description?: string }>
  readonly paths: Paths
  /** References to path items, by the type of the event. */
  readonly webhooks: Readonly<Record<string, { readonly $ref: string }>>
  readonly components: {
    readonly schemas: Schemas
    readonly responses: Readonly<Record<string, Response>>
    readonly pathItems: Paths
  }
}

/** An operation, or the request of a webhook, with its place. */
export interface Entry {
  readonly method: string
  /** The path, or the type of the event. */
  readonly path: string
  readonly operation: Operation
  readonly isWebhook: boolean
}

const entriesOf = (paths: Paths, isWebhook: boolean): ReadonlyArray<Entry> =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      operation,
      isWebhook,
    })),
  )

/** The groups of the page, in their order, each with its operations. */
export const groupsOf = ({ components, paths, tags, webhooks }: Document) => {
  const events = mapValues(webhooks, ({ $ref }) => components.pathItems[$ref.split("/").at(-1)!]!)
  const entries = [...entriesOf(paths, false), ...entriesOf(events, true)]
  return tags.map((tag) => ({
    ...tag,
    entries: entries.filter(({ operation }) => operation.tags.includes(tag.name)),
  }))
}
