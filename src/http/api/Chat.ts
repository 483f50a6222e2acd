import { ByteSize, Schema } from "effect"
import { Sse } from "effect/encoding"
import { HttpIncomingMessage } from "effect/http"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { ChatRequest } from "../../domain/chat/Chat.ts"
import { Forbidden, UnprocessableContent } from "../../domain/Errors.ts"
import { Authorization, ChatBodies } from "./middleware.ts"
import { TooManyRequestsWithRetryAfter } from "./responses.ts"
import { access } from "./security.ts"

/** The UI message stream of the AI SDK: each event's data is one part in JSON, and the last is `[DONE]`. */
const UiMessageStream = HttpApiSchema.WithHeaders(
  HttpApiSchema.StreamSse({
    events: Schema.Struct({
      ...Sse.EventEncoded.fields,
      event: Schema.Literal("message"),
      data: Schema.String.annotate({ examples: ['{"type":"text-delta","id":"answer","delta":"A key is rotated by"}'] }),
    }),
  }),
  {
    "x-vercel-ai-ui-message-stream": Schema.Literal("v1").annotate({ description: "Tells the AI SDK what this is." }),
    "x-accel-buffering": Schema.Literal("no").annotate({ description: "Asks proxies to pass each part on at once." }),
  },
)

export class ChatGroup extends HttpApiGroup.make("chat")
  .add(
    HttpApiEndpoint.post("answer", "/api/svc/chat", {
      payload: ChatRequest,
      success: UiMessageStream,
      error: [Forbidden, UnprocessableContent, TooManyRequestsWithRetryAfter],
    })
      .middleware(ChatBodies)
      .middleware(Authorization)
      .annotate(HttpIncomingMessage.MaxBodySize, ByteSize.mebibytes(8))
      .annotateMerge(access.chat)
      .annotate(OpenApi.Summary, "Chat over documentation")
      .annotate(
        OpenApi.Description,
        "Answers from the documentation that comes with the request, as the UI message stream of the AI SDK (server-sent " +
          "events), so that `useChat` works against it unchanged. Where no model is configured, the answer is the best " +
          "passages, quoted, with their slugs. A model that fails after the answer has begun is a part of the type `error`.",
      ),
  )
  .annotateMerge(OpenApi.annotations({ title: "Chat", description: "Chat over documentation." })) {}
