import { Layer } from "effect"
import * as ApiKeys from "./ApiKeys.ts"
import * as Deployments from "./Deployments.ts"
import * as Orgs from "./Orgs.ts"
import * as Projects from "./Projects.ts"
import { World } from "./World.ts"

/** Every repository in memory, over one world. */
export const layer = Layer.mergeAll(ApiKeys.layer, Deployments.layer, Orgs.layer, Projects.layer).pipe(
  Layer.provideMerge(World.layer),
)
