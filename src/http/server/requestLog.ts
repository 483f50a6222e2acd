import { Context, Effect, References } from "effect"

/** What the log lines of a request say of it: one object a request, in which what is found out on the way is added. */
const About = Context.Reference<Record<string, string> | undefined>("gatehouse/http/requestLog/About", {
  defaultValue: () => undefined,
})

/** The context of a request whose log lines carry `about` and what is added to it meanwhile. */
export const logged =
  (about: Record<string, string>) =>
  <R>(context: Context.Context<R>): Context.Context<R> =>
    context.pipe(Context.add(About, about), Context.add(References.CurrentLogAnnotations, about))

/** Says whose request it is, once that is known: on its log lines from here on, its fault's among them, and its span. */
export const ofOrg = (orgId: string): Effect.Effect<void> =>
  Effect.flatMap(About, (about) => {
    if (about !== undefined) about["orgId"] = orgId
    return Effect.annotateCurrentSpan("gatehouse.org.id", orgId)
  })
