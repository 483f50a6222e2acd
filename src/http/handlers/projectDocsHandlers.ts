import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { InvalidRequest } from "../../domain/Errors.ts"
import { DocsQuestions } from "../../domain/docs/DocsQuestions.ts"
import { DocsReaders, type ReadableDocs, StoredDocs } from "../../domain/docs/StoredDocs.ts"
import { docsToolDefinitions, type ToolDefinition } from "../../domain/docs/chatTools.ts"
import { version } from "../../domain/version.ts"
import { Api } from "../api/Api.ts"
import { readingBodies } from "./jsonBody.ts"
import type { McpMessage, McpReply } from "../api/projectDocsApi.ts"
import { clientAddress } from "../clientAddress.ts"

export const layer = HttpApiBuilder.group(Api, "docs", (handlers) =>
  Effect.gen(function* () {
    const [docs, readers, questions] = [yield* StoredDocs, yield* DocsReaders, yield* DocsQuestions]
    return readingBodies(handlers).handleAll({
      get: ({ params }) => docs.get(params.projectId),
      put: ({ params, payload }) => docs.put(params.projectId, payload),
      remove: ({ params }) => Effect.as(docs.remove(params.projectId), { deleted: true }),
      questions: ({ params, query }) => questions.list(params.projectId, query),
      mostAsked: ({ params, query }) => questions.mostAsked(params.projectId, query),
      eraseQuestions: ({ params }) => Effect.as(questions.erase(params.projectId), { deleted: true }),
      llmsTxt: ({ params }) =>
        clientAddress.pipe(
          Effect.flatMap((address) => readers.find(params.projectId, address)),
          Effect.flatMap(readers.list),
        ),
      mcp: ({ headers, params, payload }) => docsMcp(params.projectId, headers["mcp-protocol-version"], payload),
    })
  }),
)

/**
 * The versions of the protocol that are spoken, the newest first. They agree in what is used here. 2025-03-26 is not
 * among them: its servers must take batches.
 */
const versions = ["2025-11-25", "2025-06-18", "2024-11-05"] as const
const [newest] = versions
const isSpoken = (version: string) => versions.some((one) => one === version)
/** The newest version that a client of another version also knows; the newest of all for what is older or none. */
const versionFor = (asked: unknown) => versions.find((one) => typeof asked === "string" && one <= asked) ?? newest

/** The codes of JSON-RPC. */
const codes = { invalidMessage: -32_600, unknownMethod: -32_601, invalidParams: -32_602 } as const

const definitions: ReadonlyArray<ToolDefinition> = Object.values(docsToolDefinitions)

const toTool = ({ description, name, parameter }: ToolDefinition) => ({
  name,
  description,
  inputSchema: {
    type: "object",
    properties: { [parameter.name]: { type: "string", description: parameter.description } },
    required: [parameter.name],
  },
  annotations: { readOnlyHint: true, openWorldHint: false },
})

type Params = Readonly<Record<string, unknown>>
type Outcome = { readonly result: object } | { readonly error: { readonly code: number; readonly message: string } }

const failed = (code: number, message: string): Outcome => ({ error: { code, message } })

const initialize = ({ projectName }: ReadableDocs, { protocolVersion }: Params): Outcome => ({
  result: {
    protocolVersion: versionFor(protocolVersion),
    capabilities: { tools: {} },
    serverInfo: { name: "gatehouse", title: `${projectName}: documentation`, version },
    instructions: `The documentation of ${projectName}. Search it, read the pages that fit, and name their slugs or URLs.`,
  },
})

/** Uses a tool. A fault of the tool is a result that the assistant reads. */
const callTool = Effect.fnUntraced(function* (docs: ReadableDocs, { arguments: given, name }: Params) {
  const tool = definitions.find((one) => one.name === name)
  if (tool === undefined) return failed(codes.invalidParams, "There is no such tool.")
  const argument = (given as Params | undefined)?.[tool.parameter.name]
  if (typeof argument !== "string") {
    return failed(codes.invalidParams, `arguments.${tool.parameter.name} must be a string.`)
  }
  const readers = yield* DocsReaders
  const answered = yield* readers.use(docs, tool.name, argument).pipe(
    Effect.map((text = "") => ({ text, isError: false })),
    Effect.catch(({ error }) => Effect.succeed({ text: error, isError: true })),
  )
  const { isError, text } = answered
  return { result: { content: [{ type: "text", text }], isError } } as Outcome
})

const answer = (docs: ReadableDocs, method: string, params: Params): Effect.Effect<Outcome, never, DocsReaders> => {
  switch (method) {
    case "initialize":
      return Effect.succeed(initialize(docs, params))
    case "ping":
      return Effect.succeed({ result: {} })
    case "tools/list":
      return Effect.succeed({ result: { tools: definitions.map(toTool) } })
    case "tools/call":
      return callTool(docs, params)
    default:
      return Effect.succeed(failed(codes.unknownMethod, "This server has no such method."))
  }
}

/** What is wrong with a message; `undefined` for a request, a notification and an answer of the client. */
const faultOf = ({ error, id, jsonrpc, method, result }: McpMessage) => {
  const isAnswer = result !== undefined || error !== undefined
  const faults = [
    ...(jsonrpc === "2.0" ? [] : ['jsonrpc must be "2.0".']),
    ...(method === undefined && !isAnswer ? ["method is required."] : []),
  ]
  return faults.length === 0 ? undefined : { id: id ?? null, ...failed(codes.invalidMessage, faults.join(" ")) }
}

const isObject = (value: unknown): value is Params => typeof value === "object" && value !== null

/**
 * Answers one message of the Model Context Protocol over streamable HTTP, without a session. A notification and an
 * answer of the client have no reply.
 */
const docsMcp = Effect.fnUntraced(function* (projectId: string, version: string | undefined, message: McpMessage) {
  const { id, method, params } = message
  // The header has what was agreed, and `initialize` agrees: many clients send their own version with it.
  if (method !== "initialize" && version !== undefined && !isSpoken(version)) {
    return yield* new InvalidRequest({ error: `mcp-protocol-version must be one of ${versions.join(", ")}.` })
  }
  const { find } = yield* DocsReaders
  const docs = yield* find(projectId, yield* clientAddress)
  const fault = faultOf(message)
  if (fault !== undefined) return { jsonrpc: "2.0", ...fault } satisfies McpReply
  if (method === undefined || id === undefined) return undefined
  const outcome = yield* answer(docs, method, isObject(params) ? params : {})
  return { jsonrpc: "2.0", id, ...outcome } satisfies McpReply
})
