import { Schema } from "effect"

/** The answer to a CI run. `preview` is present only when it is `true`. */
export const Registration = Schema.Struct({
  ok: Schema.Boolean,
  projectId: Schema.optionalKey(Schema.String),
  branch: Schema.optionalKey(
    Schema.String.annotate({
      description: "The head branch of a pull request, else the pushed branch or tag.",
    }),
  ),
  preview: Schema.optionalKey(
    Schema.Boolean.annotate({ description: "true: the deployment is a preview. Absent: it is not." }),
  ),
}).annotate({
  identifier: "Registration",
  examples: [{ ok: true, projectId: "01KAHBMKZ3D2X7S5QN8W4V6R9V", branch: "add-search", preview: true }],
})
export interface Registration extends Schema.Schema.Type<typeof Registration> {}
