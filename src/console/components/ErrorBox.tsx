import type { ComponentChildren } from "preact"
import { GatehouseError } from "../client/call.ts"
import { Button, Icon, type IconName } from "./Button.tsx"

interface NoticeProps {
  readonly tone: "good" | "warn" | "bad" | "calm"
  readonly icon?: IconName
  readonly children: ComponentChildren
}

/** A sentence that a reader should see: what is so, and what to do. */
export const Notice = ({ children, icon, tone }: NoticeProps) => (
  <div class={`notice ${tone}`} role={tone === "bad" ? "alert" : undefined}>
    <Icon name={icon ?? (tone === "good" ? "check" : tone === "calm" ? "info" : "alert")} />
    <div>{children}</div>
  </div>
)

const remedies: Readonly<Record<number, string>> = {
  404: "It may have been deleted, or the link may be of another org.",
  429: "Wait a moment, then try again.",
  503: "The database may be restarting. Try again in a moment.",
}

const sentenceOf = (error: Error) =>
  error instanceof GatehouseError ? error.message : "The service did not answer. Look whether it runs, then try again."

/** Why an operation failed, and what to do. */
export const ErrorBox = ({
  error,
  onRetry,
}: {
  readonly error: Error | null | undefined
  readonly onRetry?: () => void
}) => {
  if (error === null || error === undefined) return null
  const { requestId, status = 0 } = error instanceof GatehouseError ? error : {}
  return (
    <Notice tone="bad">
      <strong>{sentenceOf(error)}</strong>
      {remedies[status] !== undefined && <span>{remedies[status]}</span>}
      {status >= 500 && requestId !== undefined && (
        <span class="small">
          The log has the cause under the request <code>{requestId}</code>.
        </span>
      )}
      {onRetry !== undefined && (
        <span>
          <Button isSmall onClick={onRetry}>
            Try again
          </Button>
        </span>
      )}
    </Notice>
  )
}
