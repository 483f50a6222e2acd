import type { ComponentChildren } from "preact"
import { useEffect, useState } from "preact/hooks"
import { call } from "../client/call.ts"
import type { Args, ResponseBody } from "../client/Operations.ts"
import { refresh, useCall } from "../client/queries.ts"
import { useOrg } from "../navigation/org.ts"
import { FormDialog } from "./Dialog.tsx"
import { useEndpoints } from "../pages/webhooks/endpoints.ts"
import { capitalized } from "./Badge.tsx"
import { fieldWords, sentenceOf } from "./ErrorBox.tsx"
import { isTime, Time } from "./Time.tsx"
import { ActionButton } from "./Form.tsx"
import { Card, Facts } from "./Page.tsx"
import { toast } from "./Toasts.tsx"
import { counted, numberText } from "./numbers.ts"
import { Link } from "../navigation/router.tsx"

/** How soon the page shows what was done in the background. */
const soonMillis = 1_500

type Bulk = "deliveries.resend" | "jobs.retry" | "jobs.cancel"
type Counted = Required<Pick<ResponseBody<Bulk>, "count" | "is_all">>

type Filter<A> = A extends { readonly filter?: infer F } ? NonNullable<F> : never
type Wanted = { [Id in Bulk]: { readonly id: Id; readonly filter: Filter<Args<Id>> } }[Bulk]

interface Words {
  readonly title: string
  /** What happens, in a sentence or two. */
  readonly intro: string
  /** The verb of the button. */
  readonly submit: string
  readonly isDangerous?: boolean
  /** What is counted: "delivery" and "deliveries". */
  readonly noun: readonly [one: string, many: string]
  /** What becomes of them: "will be sent again". */
  readonly verb: string
  readonly children?: ComponentChildren
  readonly onClose: () => void
}

/** A field of a filter, for people. */
const restated = ([name, value]: readonly [string, unknown]) => {
  const text = String(value)
  const shown = name === "webhook_endpoint_id" ? <EndpointUrl id={text} /> : isTime(text) ? <Time at={text} /> : text
  return [capitalized(fieldWords(name)), shown] as const
}

const EndpointUrl = ({ id }: { readonly id: string }) => <span class="anywhere">{useEndpoints([id]).nameOf(id)}</span>

/** Does something with all that a filter selects, after showing how many that is. */
export const InBulk = ({ children, filter, id, intro, noun, verb, ...dialog }: Wanted & Words) => {
  const orgId = useOrg()
  const change = useCall()
  const [count, setCount] = useState<Counted | Error>()
  useEffect(() => {
    const controller = new AbortController()
    const { signal } = controller
    setCount(undefined)
    call(id, { filter: filter as object, dry_run: true }, { orgId, signal }).then(
      (counted) => setCount(counted as Counted),
      (error: Error) => signal.aborted || setCount(error),
    )
    return () => controller.abort()
  }, [JSON.stringify(filter)])
  const isCounted = count !== undefined && !(count instanceof Error)
  const isNone = isCounted && count.count === 0 && count.is_all
  return (
    <FormDialog
      {...dialog}
      isReady={count !== undefined && !isNone}
      onSubmit={async () => {
        const { count } = (await change(id, { filter: filter as object })) as Counted
        toast(`${counted(count, ...noun)} ${verb.replace("will be", count === 1 ? "is" : "are")}.`)
        // It is done in the background, where little work is over before somebody looks.
        setTimeout(() => void refresh(), soonMillis)
      }}
    >
      <p>{intro} You can cancel the rest while it runs.</p>
      {children}
      <Facts of={Object.fromEntries(Object.entries(filter).map(restated))} />
      <p role="status">
        {count === undefined ? (
          <span class="quiet">Counting…</span>
        ) : !isCounted ? (
          <span>They could not be counted. {sentenceOf(count)}</span>
        ) : isNone ? (
          <span>No {noun[0]} matches.</span>
        ) : (
          <strong>
            {count.is_all ? "" : "At least "}
            {counted(count.count, ...noun)} {verb}.
          </strong>
        )}
      </p>
    </FormDialog>
  )
}

interface RunningBarProps {
  /** What runs: "Resending". */
  readonly label: string
  readonly done: number
  readonly count: number
  /** Ends it; absent: the reader may not. */
  readonly onCancel?: (() => Promise<unknown>) | undefined
}

/** Running work in the background, with its progress and what ends it. */
export const RunningBar = ({ count, done, label, onCancel }: RunningBarProps) => (
  <div class="running" role="group" aria-label={label}>
    <span>
      {label}: {numberText(done)} of {count >= 10_000 && "at least "}
      {numberText(count)}
    </span>
    <progress class="bar" aria-label={label} value={Math.min(done, count)} max={Math.max(1, count)} />
    {onCancel !== undefined && (
      <ActionButton isSmall onPress={onCancel}>
        Cancel the rest
      </ActionButton>
    )}
  </div>
)

interface CausesCardProps {
  readonly title: string
  readonly causes: ReadonlyArray<{
    readonly label: string
    /** Leads to all of them. */
    readonly to: string
    readonly count: number
    readonly note: ComponentChildren
    readonly newest: ComponentChildren
    readonly newestTo: string
  }>
}

/** What fails, grouped by why, the most first. */
export const CausesCard = ({ causes, title }: CausesCardProps) =>
  causes.length === 0 ? null : (
    <Card title={title} isPadded={false}>
      <ul class="causes">
        {causes.map(({ count, label, newest, newestTo, note, to }) => (
          <li key={to}>
            <Link class="main truncate-2 anywhere" title={label} to={to}>
              {label}
            </Link>
            <span>× {numberText(count)}</span>
            <span class="quiet truncate-2 anywhere">{note}</span>
            <Link class="quiet truncate-2 anywhere" to={newestTo}>
              {newest}
            </Link>
          </li>
        ))}
      </ul>
    </Card>
  )
