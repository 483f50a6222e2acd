import type { ResponseBody } from "../../client/Operations.ts"
import { bytesText, shortNumber } from "../../components/numbers.ts"

type Org = ResponseBody<"orgs.get">
export type LimitName = keyof Org["limits"]

/** The limits of an org, in words. */
export const limitLabels: Record<LimitName, string> = {
  projects: "Projects",
  keys: "API keys",
  endpoints: "Webhook endpoints",
  schedules: "Schedules",
  unfinishedJobs: "Unfinished jobs",
  pendingDeliveries: "Pending deliveries",
  storedBytes: "Stored bytes",
}
export const limitNames = Object.keys(limitLabels) as ReadonlyArray<LimitName>

export const limitText = (name: LimitName, value: number) =>
  name === "storedBytes" ? bytesText(value) : shortNumber(value)

/** How near a limit is: nobody needs to look, soon, or now. */
export const limitTone = (used: number, limit: number) =>
  used >= limit ? "bad" : used >= limit * 0.8 ? "warn" : undefined
