import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Orgs } from "../../domain/Orgs.ts"
import { Api } from "../Api.ts"
import { madeOf } from "../lean.ts"

export const layer = HttpApiBuilder.group(Api, "orgs", (handlers) =>
  Effect.map(Orgs, (orgs) =>
    handlers.handleAll({
      create: ({ payload }) => orgs.create(payload),
      list: ({ query }) => orgs.list(query),
    }),
  ),
).pipe(madeOf(Orgs))
