import { ByteSize, Schema } from "effect"
import { Sse } from "effect/encoding"
import { HttpIncomingMessage } from "effect/http"
import { HttpApi, HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { ChatRequest } from "../../domain/docs/Chat.ts"
import { Feedback } from "../../domain/docs/DocsQuestion.ts"
import { Forbidden, NotFound, UnprocessableContent } from "../../domain/Errors.ts"
import { access, Authorization, ChatBodies } from "./access.ts"
import { chatParts } from "./openapi/eventStreams.ts"
import { furtherFieldsIgnored, TooManyRequestsWithRetryAfter } from "./responses.ts"

/** The UI message stream of the AI SDK: each event has one part as JSON; the last event is `[DONE]`. */
const UiMessageStream = HttpApiSchema.WithHeaders(
  HttpApiSchema.StreamSse({
    events: Schema.Struct({
      ...Sse.EventEncoded.fields,
      event: Schema.Literal("message"),
    }),
  }),
  {
    "x-vercel-ai-ui-message-stream": Schema.Literal("v1").annotate({
      description: "Tells the AI SDK the format of the stream.",
    }),
    "x-accel-buffering": Schema.Literal("no").annotate({ description: "Tells proxies not to buffer the stream." }),
  },
)

/** The limit of a chat's request body. */
export const maxChatBodyBytes = 8 * 1024 * 1024

export class ChatGroup extends HttpApiGroup.make("chat")
  .add(
    HttpApiEndpoint.post("answer", "/api/svc/chat", {
      payload: ChatRequest,
      success: UiMessageStream,
      error: [Forbidden, NotFound, UnprocessableContent, TooManyRequestsWithRetryAfter],
    })
      .middleware(ChatBodies)
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(maxChatBodyBytes))
      .annotate(HttpApi.PayloadParseOptions, furtherFieldsIgnored)
      .annotateMerge(chatParts)
      .annotateMerge(
        access.chat.change(
          "Chat over documentation",
          "Answers from the documentation of the request. The answer is the UI message stream of the AI SDK (server-sent " +
            "events), so `useChat` works without changes. Without a model, the answer quotes the best passages with their " +
            "slugs. If the model fails after the answer has begun, the stream has a part of the type `error`.",
        ),
      ),
    HttpApiEndpoint.post("feedback", "/api/svc/chat/feedback", {
      payload: Feedback,
      success: Schema.Struct({
        recorded: Schema.Boolean.annotate({ description: "Whether the feedback is stored." }),
      }).annotate({ identifier: "FeedbackRecorded" }),
      error: [Forbidden, NotFound, TooManyRequestsWithRetryAfter],
    }).annotateMerge(
      access.feedback.nobody(
        "Say whether an answer has helped",
        "Records the reader's feedback for an answer, if the project keeps questions; the last one counts. An answer of another " +
          "project, or one that is not kept, is a 404.",
      ),
    ),
  )
  .middleware(Authorization)
  .annotateMerge(OpenApi.annotations({ title: "Chat", description: "Chat over documentation." })) {}
