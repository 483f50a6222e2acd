import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentRun } from "../../domain/Deployment.ts"
import { Deployments } from "../../domain/Deployments.ts"
import { Api } from "../Api.ts"
import { madeOf } from "../lean.ts"

export const layer = HttpApiBuilder.group(Api, "deployments", (handlers) =>
  Effect.map(Deployments, (deployments) =>
    handlers.handleAll({
      register: () => Effect.flatMap(CurrentRun, deployments.register),
      list: ({ params, query }) => deployments.list(params.projectId, query),
    }),
  ),
).pipe(madeOf(Deployments))
