import { Effect, Stream } from "effect"
import { HttpApiSchema } from "effect/http-api"
import { group } from "./group.ts"
import type { AnswerPart } from "../../domain/docs/Chat.ts"
import { Chats } from "../../domain/docs/Chats.ts"
import { DocsQuestions } from "../../domain/docs/DocsQuestions.ts"
import { Api } from "../api/Api.ts"
import { clientAddress } from "../clientAddress.ts"

const event = (data: string) => ({ event: "message" as const, data })

/** The parts as the AI SDK reads them: JSON events, then `[DONE]`. */
const uiMessageStream = (parts: Stream.Stream<AnswerPart>) =>
  HttpApiSchema.withHeaders({
    body: Stream.concat(
      Stream.map(parts, (part) => event(JSON.stringify(part))),
      Stream.succeed(event("[DONE]")),
    ),
    headers: { "x-vercel-ai-ui-message-stream": "v1" as const, "x-accel-buffering": "no" as const },
  })

export const layer = group(Api, "chat", (handlers) =>
  Effect.zipWith(Chats, DocsQuestions, (chats, questions) =>
    handlers.handleAll({
      answer: ({ payload }) =>
        Effect.flatMap(clientAddress, (address) => Effect.map(chats.answer(payload, address), uiMessageStream)),
      feedback: ({ payload }) =>
        Effect.flatMap(clientAddress, (address) => Effect.as(questions.rate(payload, address), { recorded: true })),
    }),
  ),
)
