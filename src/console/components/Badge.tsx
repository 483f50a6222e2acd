import type { ComponentChildren } from "preact"

export type Tone = "good" | "warn" | "bad" | "info" | "calm"

/** The meaning of each state in a response. */
const tones: Readonly<Record<string, Tone>> = {
  active: "good",
  completed: "good",
  current: "good",
  delivered: "good",
  live: "good",
  stored: "good",
  valid: "good",
  pending: "info",
  queued: "info",
  running: "info",
  preview: "info",
  waiting: "info",
  expiring: "warn",
  failing: "warn",
  paused: "warn",
  retried: "warn",
  retrying: "warn",
  deactivated: "bad",
  expired: "bad",
  failed: "bad",
  leaked: "bad",
}

interface BadgeProps {
  readonly tone?: Tone
  readonly isPlain?: boolean
  readonly children: ComponentChildren
}

export const Badge = ({ children, isPlain = false, tone = "calm" }: BadgeProps) => (
  <span class={`badge ${tone} ${isPlain ? "plain" : ""}`}>{children}</span>
)

export const capitalized = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1)

/** A state of a delivery, job, key, endpoint or deployment, in the colour of its meaning. */
export const State = ({ of }: { readonly of: string }) => <Badge tone={tones[of] ?? "calm"}>{capitalized(of)}</Badge>
