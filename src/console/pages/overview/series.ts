import type { Series } from "../../components/Chart.tsx"

/** What the charts of an overview count, each outcome in the colour of its meaning. */
export const deliverySeries = [
  { name: "delivered", label: "Delivered", tone: "good" },
  { name: "retried", label: "Retried", tone: "warn" },
  { name: "failed", label: "Failed", tone: "bad" },
] as const satisfies ReadonlyArray<Series>

/** Validations of one org. Invalid keys belong to no org. */
export const ownValidationSeries = [
  { name: "valid", label: "Valid", tone: "good" },
  { name: "limited", label: "Limited", tone: "warn" },
  { name: "forbidden", label: "Forbidden", tone: "calm" },
] as const satisfies ReadonlyArray<Series>

export const validationSeries = [
  ...ownValidationSeries,
  { name: "invalid", label: "Invalid", tone: "bad" },
] as const satisfies ReadonlyArray<Series>

export const jobSeries = [
  { name: "completed", label: "Completed", tone: "good" },
  { name: "canceled", label: "Canceled", tone: "calm" },
  { name: "failed", label: "Failed", tone: "bad" },
] as const satisfies ReadonlyArray<Series>
