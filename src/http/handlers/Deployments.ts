import { Effect } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { Deployments } from "../../domain/Deployments.ts"
import { Api } from "../Api.ts"
import { madeOf } from "../lean.ts"
import * as Credentials from "../credentials.ts"

export const layer = HttpApiBuilder.group(Api, "deployments", (handlers) =>
  Effect.map(Deployments, (deployments) =>
    handlers.handleAll({
      register: ({ headers }) =>
        Effect.flatMap(Credentials.read(headers), (credential) =>
          deployments.register(credential?.bearer === true ? credential.token : undefined),
        ),
      list: ({ params, query }) => deployments.list(params.projectId, query),
    }),
  ),
).pipe(madeOf(Deployments))
