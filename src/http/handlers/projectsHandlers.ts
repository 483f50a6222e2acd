import { Effect } from "effect"
import { group } from "./group.ts"
import { Projects } from "../../domain/projects/Projects.ts"
import { Api } from "../api/Api.ts"

export const layer = group(Api, "projects", (handlers) =>
  Effect.map(Projects, (projects) =>
    handlers.handleAll({
      create: ({ payload }) => projects.create(payload),
      list: ({ query }) => projects.list(query),
      get: ({ params }) => projects.get(params.projectId),
      update: ({ params, payload }) => projects.update(params.projectId, payload),
      remove: ({ params }) => Effect.as(projects.remove(params.projectId), { deleted: true }),
      getLink: ({ params }) => projects.getLink(params.projectId),
      putLink: ({ params, payload }) => projects.putLink(params.projectId, payload),
      removeLink: ({ params }) => Effect.as(projects.removeLink(params.projectId), { deleted: true }),
    }),
  ),
)
