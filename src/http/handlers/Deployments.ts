import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { CurrentRun } from "../../domain/deployments/Deployment.ts"
import { Deployments } from "../../domain/deployments/Deployments.ts"
import { Api } from "../api/Api.ts"
import { madeOf } from "../server/lean.ts"

export const layer = HttpApiBuilder.group(Api, "deployments", (handlers) =>
  Effect.map(Deployments, (deployments) =>
    handlers.handleAll({
      register: () => Effect.flatMap(CurrentRun, deployments.register),
      list: ({ params, query }) => deployments.list(params.projectId, query),
    }),
  ),
).pipe(madeOf(Deployments))
