import { Conflict, NotFound } from "../Errors.ts"

export const endpointInactive = () => new Conflict({ error: "The webhook endpoint is inactive; activate it first." })
export const endpointDeleted = () => new Conflict({ error: "The webhook endpoint was deleted." })
export const attemptInFlight = () =>
  new Conflict({ error: "An attempt of this delivery is in flight; try again when it has ended." })

export const deliveryNotFound = () => new NotFound({ error: "There is no such delivery." })
