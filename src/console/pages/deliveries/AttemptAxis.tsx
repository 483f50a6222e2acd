import { useLayoutEffect, useRef } from "preact/hooks"
import { durationText, useNow } from "../../components/Time.tsx"
import { type Attempt, type DeliveryDetail, hasSucceeded, outcomeText } from "./delivery.ts"

/** Attempts that are shown on the axis; earlier ones are in the list. */
const maxShown = 12

/** The share of the axis of a wait: from a second to a day, each ten times longer wait is one step wider. */
const widthOf = (millis: number) => 1 + Math.max(0, Math.log10(Math.max(1, millis / 1_000)))

const Wait = ({ millis, text }: { readonly millis: number; readonly text: string }) => (
  <li class="wait" style={{ flexGrow: widthOf(millis) }}>
    <span>{text}</span>
  </li>
)

interface MarkProps {
  readonly attempt: Attempt
  readonly isChosen: boolean
  readonly onChoose: () => void
}

const Mark = ({ attempt, isChosen, onChoose }: MarkProps) => (
  <li class="mark">
    <button
      type="button"
      class={hasSucceeded(attempt) ? "good" : "bad"}
      aria-pressed={isChosen}
      aria-label={`Attempt ${attempt.number}: ${outcomeText(attempt)}, ${durationText(attempt.duration_ms)}`}
      onClick={onChoose}
    >
      {attempt.number}
    </button>
    <span class="outcome">{outcomeText(attempt)}</span>
    <span class="quiet">{durationText(attempt.duration_ms)}</span>
  </li>
)

/** What happens next, if anything does. */
const Next = ({ at }: { readonly at: string }) => {
  const now = useNow(1_000)
  const left = Date.parse(at) - now
  return (
    <>
      <Wait millis={Math.abs(left)} text={left > 0 ? `next in ${durationText(left)}` : "due now"} />
      <li class="mark next">
        <span class="dot" aria-hidden="true" />
        <span class="quiet">next attempt</span>
      </li>
    </>
  )
}

interface AxisProps {
  readonly delivery: DeliveryDetail
  readonly chosen: number | undefined
  readonly onChoose: (number: number) => void
}

/** The attempts of a delivery in their order, with the waits between them: a longer wait is wider. */
export const AttemptAxis = ({ chosen, delivery, onChoose }: AxisProps) => {
  const list = useRef<HTMLOListElement>(null)
  // An axis wider than the page scrolls: the newest attempt is in view first.
  useLayoutEffect(() => list.current?.scrollTo({ left: list.current.scrollWidth }), [delivery.attempt_log.length])
  const attempts = delivery.attempt_log.slice(-maxShown)
  const isCut = attempts.length < delivery.attempt_log.length
  const created = Date.parse(delivery.created_at)
  const endOf = ({ duration_ms, started_at }: Attempt) => Date.parse(started_at) + duration_ms
  return (
    <ol ref={list} class="axis" aria-label="Attempts over time">
      <li class="mark">
        <span class="dot" aria-hidden="true" />
        <span class="quiet">{isCut ? "earlier attempts" : "created"}</span>
      </li>
      {attempts.map((attempt, i) => {
        const before = i === 0 ? (isCut ? Number.NaN : created) : endOf(attempts[i - 1]!)
        const wait = Math.max(0, Date.parse(attempt.started_at) - before)
        return (
          <>
            <Wait
              key={`wait ${attempt.number}`}
              millis={Number.isNaN(wait) ? 0 : wait}
              text={Number.isNaN(wait) ? "…" : `waited ${durationText(wait)}`}
            />
            <Mark
              key={attempt.number}
              attempt={attempt}
              isChosen={attempt.number === chosen}
              onChoose={() => onChoose(attempt.number)}
            />
          </>
        )
      })}
      {delivery.next_attempt_at !== null && <Next at={delivery.next_attempt_at} />}
    </ol>
  )
}
