import { Data, Effect } from "effect"

/** The deployment is not registered. `message` is one line that says why and what to do. It contains no token. */
export class RegistrationFailed extends Data.TaggedError("RegistrationFailed")<{ readonly message: string }> {}

export const failed = (message: string) => Effect.fail(new RegistrationFailed({ message }))
