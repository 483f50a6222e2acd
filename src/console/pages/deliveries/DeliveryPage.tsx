import { useLayoutEffect, useRef, useState } from "preact/hooks"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { State } from "../../components/Badge.tsx"
import { buttonClass, Copyable, PrintButton } from "../../components/Button.tsx"
import { Code, JsonText } from "../../components/Code.tsx"
import { ActionButton } from "../../components/Form.tsx"
import { breaks, Card, Facts, Page, styled } from "../../components/Page.tsx"
import { Loaded } from "../../components/Table.tsx"
import { durationText, Time, useNow } from "../../components/Time.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath, useParam } from "../../navigation/router.tsx"
import { JobLink } from "../jobs/JobLink.tsx"
import { useEndpoints } from "../webhooks/endpoints.ts"
import {
  type Attempt,
  curlOf,
  type DeliveryDetail,
  hasSucceeded,
  outcomeText,
  shownState,
  stateText,
} from "./DeliveryTable.tsx"

const Resend = ({ id, onDone }: { readonly id: string; readonly onDone: () => void }) => {
  const call = useCall()
  const resend = async () => {
    await call("deliveries.retry", { delivery_id: id }, { said: "The delivery is resent now." })
    onDone()
  }
  return (
    <ActionButton icon="repeat" look="primary" onPress={resend}>
      Resend
    </ActionButton>
  )
}

const isRecoverable = ({ state }: DeliveryDetail) => ["failed", "canceled", "skipped"].includes(state)

/** Leads to the recovery of this delivery and of all later ones that did not arrive. */
const RecoverSince = ({ delivery }: { readonly delivery: DeliveryDetail }) => {
  const orgId = useOrg()
  const may = useMay()
  const { byId } = useEndpoints([delivery.webhook_endpoint_id])
  const id = delivery.webhook_endpoint_id ?? ""
  if (!isRecoverable(delivery) || !byId.has(id) || !may("deliveries.resend", "webhooks.get")) return null
  return (
    <Link class={buttonClass()} to={orgPath(orgId, `/endpoints/${id}?recover=${delivery.created_at}`)}>
      Resend all since this one
    </Link>
  )
}

const About = ({ delivery }: { readonly delivery: DeliveryDetail }) => {
  const orgId = useOrg()
  const { event_id, job_id, webhook_endpoint_id: to } = delivery
  const { byId, nameOf } = useEndpoints([to])
  return (
    <Facts
      of={{
        State: stateText(delivery),
        Endpoint:
          to === null ? (
            "the callback_url of the job"
          ) : byId.has(to) ? (
            <Link to={orgPath(orgId, `/endpoints/${to}`)}>{breaks(nameOf(to))}</Link>
          ) : (
            nameOf(to)
          ),
        Event: (
          <Link to={orgPath(orgId, `/events/${event_id}`)}>
            <code>{event_id}</code>
          </Link>
        ),
        Job: job_id === null ? undefined : <JobLink id={job_id} />,
        "webhook-id": <Copyable text={delivery.delivery_id} label="Copy the id" />,
        Created: <Time at={delivery.created_at} />,
        "Next attempt":
          delivery.next_attempt_at === null ? undefined : <Time at={delivery.next_attempt_at} isRelative />,
      }}
    />
  )
}

/** The headers of a request, as far as they are no secret. */
const requestHeaders = ({ delivery_id, event }: DeliveryDetail, { started_at }: Attempt) =>
  [
    "content-type: application/json",
    `x-event-type: ${event}`,
    "x-webhook-signature: (hex HMAC-SHA256 of the body)",
    `webhook-id: ${delivery_id}`,
    `webhook-timestamp: ${Math.floor(Date.parse(started_at) / 1_000)}`,
    "webhook-signature: v1,(base64 HMAC-SHA256 of id, timestamp and body)",
  ].join("\n")

const AttemptResponse = ({ attempt, delivery }: { readonly attempt: Attempt; readonly delivery: DeliveryDetail }) => (
  <>
    <Facts
      of={{
        Attempt: `${attempt.number} of ${delivery.attempts}`,
        Started: <Time at={attempt.started_at} />,
        Took: durationText(attempt.duration_ms),
        Result: outcomeText(attempt),
        Why: attempt.error ?? undefined,
      }}
    />
    {attempt.body === null || attempt.body === "" ? (
      <p class="quiet">{attempt.status === null ? "There was no response." : "The response has no body."}</p>
    ) : (
      <JsonText title="Body of the response" text={attempt.body} />
    )}
  </>
)

const Exchange = ({
  attempt,
  delivery,
}: {
  readonly attempt: Attempt | undefined
  readonly delivery: DeliveryDetail
}) => (
  <div class="grid-2">
    <Card title="Request">
      {attempt !== undefined && <Code title="Headers" text={requestHeaders(delivery, attempt)} />}
      <JsonText title="Payload" text={delivery.payload} />
    </Card>
    <Card title={attempt === undefined ? "Response" : `Response to attempt ${attempt.number}`}>
      {attempt === undefined ? (
        <p class="quiet">There was no attempt yet.</p>
      ) : (
        <AttemptResponse attempt={attempt} delivery={delivery} />
      )}
    </Card>
  </div>
)

const AsCurl = ({ delivery }: { readonly delivery: DeliveryDetail }) => {
  const { byId } = useEndpoints([delivery.webhook_endpoint_id])
  const endpoint = byId.get(delivery.webhook_endpoint_id ?? "")
  if (endpoint === undefined) return null
  return (
    <Card title="Try the receiver yourself">
      <p class="quiet">
        The same request without its signatures, because only the service has the secret. A receiver that verifies
        refuses it.
      </p>
      <Code title="As curl" text={curlOf(delivery, endpoint.url)} />
    </Card>
  )
}

/** One delivery: its attempts over time, what was sent, and what came back. */
export default () => {
  const id = useParam("deliveryId")
  const orgId = useOrg()
  const may = useMay()
  const [chosen, setChosen] = useState<number>()
  const response = useData("deliveries.get", { delivery_id: id })
  const delivery = response.data
  const attempts = delivery?.attempt_log ?? []
  const attempt = attempts.find(({ number }) => number === chosen) ?? attempts.at(-1)
  return (
    <Page
      title={delivery?.event ?? "Delivery"}
      crumbs={[{ to: orgPath(orgId, "/deliveries"), label: "Deliveries" }]}
      state={delivery && <State of={shownState(delivery)} />}
      actions={
        delivery !== undefined && (
          <>
            <RecoverSince delivery={delivery} />
            <PrintButton />
            {may("deliveries.retry") && <Resend id={id} onDone={() => setChosen(undefined)} />}
          </>
        )
      }
    >
      <Loaded of={response}>
        {(delivery) => (
          <>
            <Card title="Attempts">
              <AttemptAxis delivery={delivery} chosen={attempt?.number} onChoose={setChosen} />
              <About delivery={delivery} />
            </Card>
            <Exchange delivery={delivery} attempt={attempt} />
            <AsCurl delivery={delivery} />
          </>
        )}
      </Loaded>
    </Page>
  )
}

/** Attempts that are shown on the axis; earlier ones are in the list. */
const maxShown = 12

/** The share of the axis of a wait: from a second to a day, each ten times longer wait is one step wider. */
const widthOf = (millis: number) => 1 + Math.max(0, Math.log10(Math.max(1, millis / 1_000)))

const Wait = ({ millis, text }: { readonly millis: number; readonly text: string }) => (
  <li class="wait" {...styled({ flexGrow: widthOf(millis) })}>
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
const AttemptAxis = ({ chosen, delivery, onChoose }: AxisProps) => {
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
