import { Effect, Schema } from "effect"
import { Id } from "../Schemas.ts"
import { type ActivityKind, type ActivityOutcome, outcomesOf } from "./Activity.ts"

/** What orgs are ranked by: outcomes of one kind. */
export const measures = {
  attempts: { kind: "deliveries", outcomes: outcomesOf.deliveries },
  failedAttempts: { kind: "deliveries", outcomes: ["retried", "failed"] },
  validations: { kind: "validations", outcomes: outcomesOf.validations },
  jobs: { kind: "jobs", outcomes: outcomesOf.jobs },
} as const satisfies Readonly<
  Record<string, { readonly kind: ActivityKind; readonly outcomes: ReadonlyArray<ActivityOutcome> }>
>
export type Measure = keyof typeof measures

/** The names of the measures. */
export const measureNames = [
  "attempts",
  "failedAttempts",
  "validations",
  "jobs",
] as const satisfies ReadonlyArray<Measure>

const count = (description: string, example: number) => Schema.Int.annotate({ description, examples: [example] })

/** An org by what it did. */
export const ActiveOrg = Schema.Struct({
  orgId: Id,
  name: Schema.String.annotate({ examples: ["Acme"] }),
  attempts: count("Attempts of deliveries.", 1_200),
  failedAttempts: count("Those of them that failed.", 42),
  validations: count("Validations of its keys.", 90_000),
  jobs: count("Finished jobs.", 300),
}).annotate({ identifier: "ActiveOrg" })
export interface ActiveOrg extends Schema.Schema.Type<typeof ActiveOrg> {}

/** The query of the orgs that use most. */
export const measureQuery = Schema.Literals(measureNames)
  .annotate({ description: "What the orgs are ranked by. Default: attempts.", examples: ["attempts"] })
  .pipe(Schema.withDecodingDefaultKey(Effect.succeed("attempts" as const)))
