import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Deployments } from "../../domain/deployments/Deployments.ts"
import { currentRun } from "../../domain/Principal.ts"
import { Api } from "../api/Api.ts"

export const layer = HttpApiBuilder.group(Api, "deployments", (handlers) =>
  Effect.map(Deployments, (deployments) =>
    handlers.handleAll({
      register: () => Effect.flatMap(currentRun, deployments.register),
      promote: ({ params }) => deployments.promote(params.projectId, params.deploymentId),
      list: ({ params, query }) => deployments.list(params.projectId, query),
    }),
  ),
)
