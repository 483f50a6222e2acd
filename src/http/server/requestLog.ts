import { Context, Effect, References } from "effect"

/** The annotations of the log lines of a request: one mutable object, so that later findings are on later lines. */
const LogFields = Context.Reference<Record<string, string> | undefined>("gatehouse/http/requestLog/LogFields", {
  defaultValue: () => undefined,
})

/** Adds the fields to the log lines of a request, with the fields that are added to the object later. */
export const logged =
  (fields: Record<string, string>) =>
  <R>(context: Context.Context<R>): Context.Context<R> =>
    context.pipe(Context.add(LogFields, fields), Context.add(References.CurrentLogAnnotations, fields))

/** Adds the org to the log lines of the request from now on, and to its span. */
export const annotateOrg = (orgId: string): Effect.Effect<void> =>
  Effect.flatMap(LogFields, (fields) => {
    if (fields !== undefined) fields["orgId"] = orgId
    return Effect.annotateCurrentSpan("gatehouse.org.id", orgId)
  })
