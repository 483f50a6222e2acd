import { Effect } from "effect"
import { group } from "./group.ts"
import { Deployments } from "../../domain/deployments/Deployments.ts"
import { currentRun } from "../../domain/Principal.ts"
import { Api } from "../api/Api.ts"

export const layer = group(Api, "deployments", (handlers) =>
  Effect.map(Deployments, (deployments) =>
    handlers.handleAll({
      register: () => Effect.flatMap(currentRun, deployments.register),
      promote: ({ params }) => deployments.promote(params.projectId, params.deploymentId),
      list: ({ params, query }) => deployments.list(params.projectId, query),
    }),
  ),
)
