import { Effect, Layer } from "effect"
import { audit } from "./audit.ts"
import type { Settings } from "./config.ts"
import { ChatBodyMemory } from "../domain/chat/ChatBodyMemory.ts"
import { UnverifiedSentences } from "../domain/chat/verifyAnswer.ts"
import { ChatRateLimits } from "../domain/chat/ChatRateLimits.ts"
import { Chats } from "../domain/chat/Chats.ts"
import { LanguageModel } from "../domain/chat/LanguageModel.ts"
import { DocsFetcher } from "../domain/docs/DocsFetcher.ts"
import { DocsQuestions } from "../domain/docs/DocsQuestions.ts"
import { DocsReaders } from "../domain/docs/DocsReaders.ts"
import { DocsWakeup } from "../domain/docs/DocsWakeup.ts"
import { StoredDocs } from "../domain/docs/StoredDocs.ts"
import * as DocsIndexes from "../infrastructure/chat/DocsIndexes.ts"
import * as Documents from "../infrastructure/chat/Documents.ts"
import { ZipReader } from "../infrastructure/chat/ZipReader.ts"
import * as DocsQuestionsSql from "../infrastructure/docs/DocsQuestionRepository.ts"
import * as ProjectDocsSql from "../infrastructure/docs/ProjectDocsRepository.ts"
import { cachesWithin, memoryLimit } from "./memory.ts"
import { releaseMemory } from "./releaseMemory.ts"

/** Chat over documentation, and documentation that is stored with projects. Loads the model's SDK only if a model is configured. */
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
  const indexes = DocsIndexes.layer(chatIndexMemory ?? caches.indexes)
  return Layer.mergeAll(Chats.layer, DocsFetcher.layer, DocsReaders.layer).pipe(
    Layer.provideMerge(Layer.merge(DocsQuestions.layer, StoredDocs.layer)),
    Layer.provide([model, Layer.succeed(UnverifiedSentences, aiUnverified), audit]),
    Layer.provide([DocsQuestionsSql.layer, ProjectDocsSql.layer]),
    Layer.provide(Layer.provide(Documents.layer({ maxBytes: caches.documents }), ZipReader.layer)),
    Layer.provideMerge(Layer.mergeAll(ChatRateLimits.layer, DocsWakeup.layer, indexes)),
    Layer.provideMerge(Layer.succeed(ChatBodyMemory, { bytes: caches.chatBodies, release: releaseMemory })),
  )
}
