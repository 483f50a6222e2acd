import { Effect } from "effect"
import { DocsReaders } from "../../domain/docs/DocsReaders.ts"
import { HttpApiBuilder } from "effect/http-api"
import { DocsQuestions } from "../../domain/docs/DocsQuestions.ts"
import { StoredDocs } from "../../domain/docs/StoredDocs.ts"
import { Api } from "../api/Api.ts"
import { clientAddress } from "../server/clientAddress.ts"
import { docsMcp } from "../server/docsMcp.ts"

export const layer = HttpApiBuilder.group(Api, "docs", (handlers) =>
  Effect.gen(function* () {
    const [docs, readers, questions] = [yield* StoredDocs, yield* DocsReaders, yield* DocsQuestions]
    return handlers.handleAll({
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
