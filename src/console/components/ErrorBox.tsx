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

const words: Readonly<Record<string, string>> = {
  enabled: "state",
  active: "state",
  url: "URL",
  expiresAt: "end",
  allowedIps: "allowed networks",
  secretChanged: "signing secret",
  webhook_endpoint_id: "endpoint",
  others: "other rows",
  docsPages: "pages of documentation",
  docsQuestions: "questions of readers",
  hostOwner: "owner of the repository",
  hostRepo: "name of the repository",
  docsZipUrl: "URL of the zip",
  docsUrl: "address of the site",
}

/** The words of a field: "rateLimit" and "max_per_second" as people read them. */
export const fieldWords = (field: string) =>
  words[field] ??
  field
    .replaceAll("_", " ")
    .replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
    .trim()

const ordinals = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]

/** The words of a path: "permissions.1" is "second permission", "rateLimit.limit" is "limit of the rate limit". */
export const pathWords = (path: string) => {
  let [head, tail] = ["", ""]
  for (const part of path.split(".")) {
    if (/^\d+$/.test(part)) head = `${ordinals[Number(part)] ?? `number ${Number(part) + 1}`} ${head.replace(/s$/, "")}`
    else [head, tail] = [fieldWords(part), head === "" ? "" : ` of the ${head}${tail}`]
  }
  return head + tail
}

/** What the service says of the fields of a request, in the words of the page. */
const inWords = (sentence: string) =>
  sentence.replace(
    /(^|; )([a-z]\w*(?:\.\w+)*)(?= (?:must|is required))/g,
    (_, before: string, path: string) => `${before}${before === "" ? "The" : "the"} ${pathWords(path)}`,
  )

/** Whether a proxy answered, such as one that asks people to sign in, and not the service. */
const isForeign = (error: GatehouseError) => error.code === "unknown"

/** Why an operation failed, for people. */
export const sentenceOf = (error: Error) => {
  if (!(error instanceof GatehouseError)) return "The service did not answer. Look whether it runs, then try again."
  if (isForeign(error)) {
    const what = error.status === 0 ? "a redirect" : `status ${error.status}`
    return `Something else answered in the place of the service, with ${what}. Try again, or load this page again.`
  }
  return error.status === 400 ? inWords(error.message) : error.message
}

/** Why an operation failed, and what to do. */
export const ErrorBox = ({
  error,
  onRetry,
}: {
  readonly error: Error | null | undefined
  readonly onRetry?: () => void
}) => {
  if (error === null || error === undefined) return null
  const { requestId, status = 0 } = error instanceof GatehouseError && !isForeign(error) ? error : {}
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
