import { Effect, Layer } from "effect"
import type { Settings } from "./config.ts"
import { ChatBodyMemory } from "../domain/chat/ChatBodyMemory.ts"
import { UnverifiedSentences } from "../domain/chat/verifyAnswer.ts"
import { Chats } from "../domain/chat/Chats.ts"
import { LanguageModel } from "../domain/chat/LanguageModel.ts"
import * as DocsIndexes from "../infrastructure/chat/DocsIndexes.ts"
import * as Documents from "../infrastructure/chat/Documents.ts"
import { cachesWithin, memoryLimit } from "./memory.ts"
import { releaseMemory } from "./releaseMemory.ts"

/** Chat over documentation. Loads the model's SDK only if a model is configured. */
export const chat = ({ ai, aiUnverified, chatIndexMemory }: Settings) => {
  const caches = cachesWithin(memoryLimit())
  const model =
    ai === undefined
      ? LanguageModel.none
      : Layer.unwrap(
          Effect.map(
            Effect.promise(() => import("../infrastructure/chat/LanguageModel.ts")),
            (module) => module.layer(ai),
          ),
        )
  return Chats.layer.pipe(
    Layer.provide([
      model,
      Layer.succeed(UnverifiedSentences, aiUnverified),
      Documents.layer({ maxBytes: caches.documents }),
      DocsIndexes.layer(chatIndexMemory ?? caches.indexes),
    ]),
    Layer.provideMerge(Layer.succeed(ChatBodyMemory, { bytes: caches.chatBodies, release: releaseMemory })),
  )
}
