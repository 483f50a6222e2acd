import { describe, expect } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { AuditLog } from "#src/domain/audit/AuditLog.ts"
import { ChatRateLimits, ChatRates } from "#src/domain/docs/ChatRateLimits.ts"
import { DocsReaders, DocsWakeup, StoredDocs } from "#src/domain/docs/StoredDocs.ts"
import { Principal } from "#src/domain/Principal.ts"
import * as crypto from "../../fakes/crypto.ts"
import * as DocsIndexes from "../../fakes/DocsIndexes.ts"
import * as fakes from "../../fakes/repositories.ts"
import { it } from "../../support/it.ts"
import { as, asAnonymous } from "../support.ts"

const readers = DocsReaders.layer.pipe(
  Layer.provide(StoredDocs.layer),
  Layer.provide([AuditLog.layer, DocsWakeup.layer, DocsIndexes.layer]),
  Layer.provide(ChatRateLimits.layer.pipe(Layer.provide(Layer.succeed(ChatRates, { projectKey: 3, address: 2 })))),
  Layer.provide(fakes.layer),
  Layer.provide(crypto.layer),
)

const tagOf = (address: string) =>
  DocsReaders.use(({ find }) => find("project", address)).pipe(
    Effect.match({ onSuccess: () => "found", onFailure: ({ _tag }) => _tag }),
  )

describe("readers of stored documentation", () => {
  it.effect("share the rate limits of chats: by key, and by address without one", () =>
    Effect.gen(function* () {
      const anonymous = asAnonymous(tagOf("a"))
      expect([yield* anonymous, yield* anonymous, yield* anonymous]).toEqual([
        "Unauthorized",
        "Unauthorized",
        "TooManyRequests",
      ])
      expect(yield* asAnonymous(tagOf("b"))).toBe("Unauthorized")
      const byKey = as(Principal.ProjectKey({ keyId: "key", orgId: "org", projectId: "project" }))(tagOf("a"))
      const tags = [yield* byKey, yield* byKey, yield* byKey, yield* byKey]
      expect(tags).toEqual(["NotFound", "NotFound", "NotFound", "TooManyRequests"])
      yield* TestClock.adjust("1 minute")
      expect(yield* anonymous).toBe("Unauthorized")
    }).pipe(Effect.provide(readers)),
  )
})
