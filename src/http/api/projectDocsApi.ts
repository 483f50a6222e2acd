import { Schema } from "effect"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { AskedQuestion, DocsQuestionPage, mostAskedQuery, questionQuery } from "../../domain/docs/DocsQuestion.ts"
import { isRawNumber, type RawNumber } from "../../domain/exactJson.ts"
import { ProjectDocs, PutProjectDocs } from "../../domain/docs/ProjectDocs.ts"
import { Forbidden, LimitReached, NotFound } from "../../domain/Errors.ts"
import { ProjectId } from "../../domain/Schemas.ts"
import { access, Authorization } from "./access.ts"
import { Deleted, furtherFieldsIgnored, TooManyRequestsWithRetryAfter } from "./responses.ts"

const params = { projectId: ProjectId }

/** An id is answered as it is: a number keeps its text. */
const MessageId = Schema.declare(
  (id): id is string | number | RawNumber => typeof id === "string" || Number.isFinite(id) || isRawNumber(id),
  {
    expected: "a string or a number",
    toJsonSchema: () => ({ anyOf: [{ type: "string" }, { type: "number" }] }),
    toCodecJson: () => undefined,
  },
)

/** A message of a client, as JSON-RPC 2.0: a request, a notification (without id), or an answer (without method). */
export const McpMessage = Schema.Struct({
  jsonrpc: Schema.optionalKey(Schema.Unknown).annotateKey({
    description: 'Must be "2.0"; otherwise the reply is an error.',
    examples: ["2.0"],
  }),
  id: Schema.optionalKey(MessageId.annotate({ description: "Absent: a notification.", examples: [1] })),
  method: Schema.optionalKey(
    Schema.String.annotate({ description: "The name of the method.", examples: ["tools/call"] }),
  ),
  params: Schema.optionalKey(Schema.Unknown).annotateKey({
    description: "The parameters of the method.",
    examples: [{ name: "search_docs", arguments: { query: "rotate a key" } }],
  }),
  result: Schema.optionalKey(Schema.Unknown).annotateKey({ description: "The result in an answer of the client." }),
  error: Schema.optionalKey(Schema.Unknown).annotateKey({ description: "The error in an answer of the client." }),
}).annotate({ identifier: "McpMessage" })
export type McpMessage = typeof McpMessage.Type

/** The reply to a request. */
export const McpReply = Schema.Struct({
  jsonrpc: Schema.Literal("2.0").annotate({ description: "The version of JSON-RPC." }),
  // Not a union with null: generators of clients do not read one of several plain types.
  id: Schema.Unknown.annotateKey({
    description: "The id of the request, a string or a number. null: it has none.",
    examples: [1],
  }),
  result: Schema.optionalKey(Schema.Unknown).annotateKey({
    description: "The result of the method. Absent: it failed.",
    examples: [{ content: [{ type: "text", text: "slug: guides/keys" }], isError: false }],
  }),
  error: Schema.optionalKey(
    Schema.Struct({
      code: Schema.Int.check(Schema.isBetween({ minimum: -32_768, maximum: -32_000 })).annotate({
        description: "The code of JSON-RPC 2.0.",
        examples: [-32_602],
      }),
      message: Schema.String.annotate({ description: "What is wrong with the request." }),
    }).annotate({ description: "Why the method failed." }),
  ),
}).annotate({ identifier: "McpReply" })
export type McpReply = typeof McpReply.Type

const LlmsText = Schema.String.annotate({
  description: "The pages with their titles, links and descriptions, as llmstxt.org defines it.",
  examples: ["# docs\n\n## Docs\n\n- [Keys](https://docs.example.com/guides/keys): Create and rotate keys."],
}).pipe(HttpApiSchema.asText({ contentType: "text/plain; charset=utf-8" }))

export class ProjectDocsGroup extends HttpApiGroup.make("docs")
  .add(
    HttpApiEndpoint.get("get", "/api/v0/projects/:projectId/docs", {
      params,
      success: ProjectDocs,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read(
        "Get the documentation of a project",
        "Returns the settings, what is stored, and why the last fetch failed. A project without documentation is " +
          "a 404.",
      ),
    ),
    HttpApiEndpoint.put("put", "/api/v0/projects/:projectId/docs", {
      params,
      payload: PutProjectDocs,
      success: ProjectDocs,
      error: [Forbidden, NotFound, LimitReached],
    }).annotateMerge(
      access.management.change(
        "Store the documentation of a project",
        "Sets where the documentation is; an absent field has its default (null, false). Gatehouse fetches the " +
          "zip in the " +
          "background: after each such request, and once for each new current deployment. A failed fetch is " +
          "repeated six " +
          "times within five hours. Chats with a key of the project that send no documentation are answered from " +
          "what is " +
          "stored. Its size counts toward LIMIT_STORED_BYTES.",
      ),
    ),
    HttpApiEndpoint.delete("remove", "/api/v0/projects/:projectId/docs", {
      params,
      success: Deleted,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.change(
        "Remove the documentation of a project",
        "Removes the settings, the stored pages and the questions of readers, for good. Nobody reads them from " +
          "the answer on; " +
          "their rows are erased in the background.",
      ),
    ),
    HttpApiEndpoint.get("questions", "/api/v0/projects/:projectId/docs/questions", {
      params,
      query: questionQuery,
      success: DocsQuestionPage,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read(
        "List the questions of readers",
        "Newest first: questions that were asked with the project's keys while keepQuestions was true. The newest " +
          "10,000 are " +
          "kept, for RETENTION_DAYS.",
      ),
    ),
    HttpApiEndpoint.get("mostAsked", "/api/v0/projects/:projectId/docs/questions/most-asked", {
      params,
      query: mostAskedQuery,
      success: Schema.Struct({
        questions: Schema.Array(AskedQuestion).annotate({ description: "The questions, the most asked first." }),
      }).annotate({ identifier: "MostAsked" }),
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.read(
        "List the most asked questions",
        "Counts how often each question was asked, the most frequent first. Case and punctuation do not matter. " +
          "With found=false: those that found " +
          "nothing. With since and until: those of a range of time.",
      ),
    ),
    HttpApiEndpoint.delete("eraseQuestions", "/api/v0/projects/:projectId/docs/questions", {
      params,
      success: Deleted,
      error: [Forbidden, NotFound],
    }).annotateMerge(
      access.management.change(
        "Erase the questions of readers",
        "Erases all questions of the project that are kept, for good.",
      ),
    ),
    HttpApiEndpoint.get("llmsTxt", "/api/v0/projects/:projectId/docs/llms.txt", {
      params,
      success: LlmsText,
      error: [Forbidden, NotFound, TooManyRequestsWithRetryAfter],
    }).annotateMerge(
      access.docsReader.read(
        "List the pages of a project for assistants",
        "Returns the stored documentation as llms.txt. Links are absolute with docsUrl, otherwise they are slugs.",
      ),
    ),
    HttpApiEndpoint.post("mcp", "/api/v0/projects/:projectId/docs/mcp", {
      params,
      headers: {
        "mcp-protocol-version": Schema.optionalKey(
          Schema.String.annotate({
            description: "The version of the protocol that was agreed.",
            examples: ["2025-11-25"],
          }),
        ),
      },
      payload: McpMessage,
      success: [
        McpReply,
        HttpApiSchema.Accepted.annotate({ description: "A notification or an answer; there is no reply." }),
      ],
      error: [Forbidden, NotFound, TooManyRequestsWithRetryAfter],
    })
      .annotate(HttpApi.PayloadParseOptions, furtherFieldsIgnored)
      .annotateMerge(
        access.docsReader.read(
          "Read the documentation of a project by MCP",
          "The MCP server of the stored documentation: streamable HTTP, stateless, each answer as JSON. Its tools " +
            "are search_docs " +
            "and read_page. An MCP client needs only this URL, and a key unless the documentation is public.",
        ),
      ),
  )
  .middleware(Authorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Documentation",
      description: "Documentation that is stored with a project.",
    }),
  ) {}
