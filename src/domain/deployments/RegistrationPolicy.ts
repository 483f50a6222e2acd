import { Context } from "effect"
import { InvalidRequest } from "../Errors.ts"
import type { RegistrationRules } from "./admission.ts"

/** What the operator has configured about registrations. */
export class RegistrationPolicy extends Context.Service<RegistrationPolicy, RegistrationRules>()(
  "gatehouse/domain/Deployments/RegistrationPolicy",
) {}

/** The error for a provider that the operator has not configured. */
export const unknownProvider = (field: string, { issuers }: RegistrationRules) =>
  new InvalidRequest({ error: `${field} must name a configured CI provider: ${[...issuers.keys()].join(", ")}.` })
