import { useEffect, useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Badge, State } from "../../components/Badge.tsx"
import { Button, Copyable } from "../../components/Button.tsx"
import { millisOf } from "../../components/Chart.tsx"
import { JsonText } from "../../components/Code.tsx"
import { AskButton, DeleteButton, Dialog } from "../../components/Dialog.tsx"
import { ErrorBox, Notice } from "../../components/ErrorBox.tsx"
import { choice, json, useFields } from "../../components/Fields.tsx"
import { ActionButton, useAction } from "../../components/Form.tsx"
import { InBulk } from "../../components/InBulk.tsx"
import { Card, Empty, Facts, Page } from "../../components/Page.tsx"
import { Loaded, Skeleton } from "../../components/Table.tsx"
import { ago, durationText, Time, ChooseTimes, type Times } from "../../components/Time.tsx"
import { numberText } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { Segments } from "../../components/Tabs.tsx"
import { Link, navigate, orgPath, useChoice, useParam, useSearch } from "../../navigation/router.tsx"
import { useChanges } from "../audit/useChanges.tsx"
import { deliveryStates, DeliveryTable, hasSucceeded, outcomeText } from "../deliveries/DeliveryTable.tsx"
import { Causes, causeText, RunningResends } from "../deliveries/Resends.tsx"
import { EditEndpoint, type EndpointDialogProps } from "./EndpointForm.tsx"
import { SigningSecret } from "./SigningSecret.tsx"
import { authText, bodies, type EndpointDetail, reasonText, shortUrl, stateOf } from "./endpoints.ts"

/** What a reader should know first: that it is inactive, or fails, and what to do. */
const Health = ({ endpoint, onRecover }: { readonly endpoint: EndpointDetail; readonly onRecover: () => void }) => {
  const may = useMay()
  const { active, deactivated_at, deactivated_reason, failing_since } = endpoint
  if (!active) {
    return (
      <Notice tone="bad">
        <strong>
          Deactivated <Time at={deactivated_at} isRelative />, and receives nothing.
        </strong>
        {deactivated_reason !== null && <span>{reasonText[deactivated_reason]}</span>}
        {deactivated_reason !== "by_request" && (
          <LatestFailure id={endpoint.webhook_endpoint_id} {...(deactivated_reason === "gone" && { status: 410 })} />
        )}
        {may("webhooks.update") && <Activate endpoint={endpoint} onDone={onRecover} />}
      </Notice>
    )
  }
  if (failing_since === null) return null
  return (
    <Notice tone="warn">
      <strong>
        Every attempt has failed since <Time at={failing_since} isRelative />.
      </strong>
      <LatestFailure id={endpoint.webhook_endpoint_id} />
      <span>After five days without a success, the endpoint is deactivated.</span>
    </Notice>
  )
}

const Counts = ({ endpoint }: { readonly endpoint: EndpointDetail }) => {
  const orgId = useOrg()
  const to = (state: string) => orgPath(orgId, `/deliveries?endpoint=${endpoint.webhook_endpoint_id}&state=${state}`)
  return (
    <dl class="counts">
      {deliveryStates.map((state) => (
        <div class="stack tight" key={state}>
          <dt>
            <State of={state} />
          </dt>
          <dd>
            <Link to={to(state)}>{numberText(endpoint.deliveries[state])}</Link>
          </dd>
        </div>
      ))}
    </dl>
  )
}

const Deliveries = ({ id }: { readonly id: string }) => {
  const orgId = useOrg()
  const { more: _, ...pages } = usePages(
    "deliveries.list",
    { webhook_endpoint_id: id, limit: 10 },
    ({ deliveries }) => deliveries,
  )
  return (
    <DeliveryTable
      title="Deliveries"
      actions={<Link to={orgPath(orgId, `/deliveries?endpoint=${id}`)}>Show all and filter</Link>}
      {...pages}
      isOfEndpoint
      empty={
        <Empty icon="send" title="Nothing was delivered yet">
          <p>Send a test to see what the receiver answers. The next event of its types comes here.</p>
        </Empty>
      }
    />
  )
}

/** One endpoint: its health, its settings, its deliveries, and what can be done. */
export default () => {
  const id = useParam("endpointId")
  const orgId = useOrg()
  const may = useMay()
  const call = useCall()
  // A delivery leads here, to recover what came since then.
  const [since, setSince] = useSearch("recover")
  const [open, setOpen] = useState<keyof typeof dialogs | undefined>(since === undefined ? undefined : "recover")
  const response = useData("webhooks.get", { id }, { refetchMillis: 15_000 })
  const endpoint = response.data
  const crumbs = [{ to: orgPath(orgId, "/endpoints"), label: "Endpoints" }]
  const close = () => {
    setOpen(undefined)
    if (since !== undefined) setSince(undefined)
  }
  const remove = async () => {
    await call("webhooks.delete", { id }, { said: "The endpoint is deleted." })
    navigate(orgPath(orgId, "/endpoints"))
  }
  const Open = open && dialogs[open]
  const actions = endpoint !== undefined && (
    <>
      {may("webhooks.test") && (
        <Button icon="send" look="primary" onClick={() => setOpen("test")}>
          Send a test
        </Button>
      )}
      {may("deliveries.resend") && endpoint.active && (
        <Button icon="repeat" onClick={() => setOpen("recover")}>
          Resend what it missed
        </Button>
      )}
      {may("webhooks.update") && <Button onClick={() => setOpen("edit")}>Edit</Button>}
      {may("webhooks.update") && endpoint.active && (
        <AskButton
          {...{ icon: "pause", text: "Deactivate", submit: "Deactivate", title: "Deactivate this endpoint?" }}
          onConfirm={() => call("webhooks.update", { id, active: false })}
        >
          <p>It receives nothing from now on, and its pending deliveries are canceled.</p>
          <p>New events are kept as skipped. When it is active again, you can resend what it missed.</p>
        </AskButton>
      )}
      {may("webhooks.delete") && (
        <DeleteButton
          label="Delete the endpoint"
          title="Delete this endpoint?"
          submit="Delete endpoint"
          onConfirm={remove}
        >
          <p class="anywhere">
            <code>{endpoint.url}</code> receives nothing from now on.
            {endpoint.deliveries.pending > 0 &&
              ` ${numberText(endpoint.deliveries.pending)} pending deliveries are canceled.`}
          </p>
          <p>Finished deliveries stay readable. This cannot be undone.</p>
        </DeleteButton>
      )}
    </>
  )
  return (
    <Page
      title={endpoint === undefined ? "Endpoint" : shortUrl(endpoint.url)}
      crumbs={crumbs}
      intro={endpoint?.description}
      state={endpoint && <State of={stateOf(endpoint)} />}
      actions={actions}
    >
      <Loaded of={response}>
        {(endpoint) => (
          <>
            <RunningResends />
            <Health endpoint={endpoint} onRecover={() => setOpen("recover")} />
            <div class="grid-2">
              <div class="stack">
                <AttemptHealth endpoint={endpoint} />
                <Card title="Deliveries as they are now">
                  <Counts endpoint={endpoint} />
                  <span class="quiet small">Of its newest 10,000.</span>
                </Card>
              </div>
              <Card title="Settings">
                <EndpointSettings endpoint={endpoint} />
              </Card>
            </div>
            {may("deliveries.causes") && <Causes endpoint={id} />}
            <Deliveries id={id} />
            <SigningSecret id={id} />
          </>
        )}
      </Loaded>
      {endpoint !== undefined && Open !== undefined && <Open endpoint={endpoint} since={since} onClose={close} />}
    </Page>
  )
}

/** Brings an inactive endpoint back, and offers to resend what it missed. */
const Activate = ({ endpoint, onDone }: { readonly endpoint: EndpointDetail; readonly onDone: () => void }) => {
  const call = useCall()
  const activate = async () => {
    await call(
      "webhooks.update",
      { id: endpoint.webhook_endpoint_id, active: true },
      { said: "The endpoint is active again." },
    )
    onDone()
  }
  return (
    <ActionButton icon="play" onPress={activate}>
      Activate again
    </ActionButton>
  )
}

/** How long before `failing_since` a recovery begins: a delivery is created before its first attempt. */
const marginMillis = 60_000

/** Since when an endpoint has missed deliveries: since it fails, or since it is inactive. */
const beginningOf = ({ deactivated_at, failing_since }: EndpointDetail) => {
  const since = failing_since ?? deactivated_at
  return since === null ? ago(millisOf.day) : new Date(Date.parse(since) - marginMillis).toISOString()
}

interface RecoverProps extends EndpointDialogProps {
  /** When the reader wants to begin; undefined: when the endpoint began to miss deliveries. */
  readonly since: string | undefined
}

/** Sends again what an endpoint missed in a time. */
const Recover = ({ endpoint, onClose, since: asked }: RecoverProps) => {
  const [times, setTimes] = useState<Times>(() => ({ since: asked ?? beginningOf(endpoint) }))
  const { since = beginningOf(endpoint), until } = times
  // A link of a delivery opens it: an inactive endpoint gets nothing, and the page says so.
  if (asked !== undefined && !endpoint.active) return null
  return (
    <InBulk
      id="deliveries.resend"
      filter={{ webhook_endpoint_id: endpoint.webhook_endpoint_id, since, ...(until !== undefined && { until }) }}
      title="Resend what the endpoint missed"
      intro="Resends all deliveries that failed, were canceled, or were skipped while the endpoint was inactive."
      submit="Resend"
      noun={["delivery", "deliveries"]}
      verb="will be resent"
      onClose={onClose}
    >
      <ChooseTimes {...times} isRequired onChange={setTimes} />
    </InBulk>
  )
}

type Result = ResponseBody<"webhooks.test">

const Found = ({ result }: { readonly result: Result }) => (
  <>
    <Notice tone={result.delivered ? "good" : "bad"}>
      <strong>
        {result.delivered ? "The receiver took it" : "The receiver did not take it"}
        {result.status !== null && `: HTTP ${result.status}`}
      </strong>
      {result.error !== null && <span>{result.error}</span>}
      {!result.delivered && result.status !== null && <span>Only a 2xx status counts as delivered.</span>}
    </Notice>
    <JsonText title="What was sent" text={result.payload} />
    {result.body !== null && result.body !== "" && <JsonText title="Response" text={result.body} />}
  </>
)

/** The types that a test can have: those that the endpoint names, and those that were seen and match. */
const useTestTypes = (patterns: EndpointDetail["event_types"]) => {
  const { data } = useData("events.types", {})
  const { data: catalogue } = useData("eventTypes.list", { limit: 100 })
  const exact = (patterns ?? []).filter((pattern) => !pattern.includes("*"))
  const starts = (patterns ?? ["*"]).filter((pattern) => pattern.includes("*")).map((pattern) => pattern.slice(0, -1))
  const seen = (data?.types ?? []).map(({ type }) => type)
  const described = (catalogue?.event_types ?? []).map(({ name }) => name)
  const known = [...described, ...seen, "job.completed", "job.failed"]
  return [...new Set([...exact, ...known.filter((type) => starts.some((start) => type.startsWith(start)))])]
}

const testFields = {
  type: { ...choice<string>({ "": "The first of the endpoint" }), label: "Event type" },
  data: {
    ...json,
    label: "Data",
    hint: "Any JSON. Empty: made-up data of the type.",
    placeholder: '{ "invoice": "in_42" }',
  },
}

/** Sends a signed test event, and shows what the receiver answers. */
const SendTest = ({ endpoint, onClose }: EndpointDialogProps) => {
  const call = useCall()
  const types = useTestTypes(endpoint.event_types)
  const [result, setResult] = useState<Result>()
  const { error, isRunning, run } = useAction()
  const { changes, field, isValid } = useFields(testFields)
  const send = () =>
    run(async () => setResult(await call("webhooks.test", { id: endpoint.webhook_endpoint_id, ...changes })))
  useEffect(() => void send(), [])
  return (
    <Dialog title="Test of the endpoint" onClose={onClose}>
      <p class="quiet">
        A signed {result === undefined ? "event" : <code>{result.event}</code>} with made-up data. It is no delivery,
        and in no list.
      </p>
      <ErrorBox error={error} />
      {isRunning ? <Skeleton lines={2} /> : result !== undefined && <Found result={result} />}
      {field("type", { options: [...testFields.type.options, ...types.map((value) => ({ value, label: value }))] })}
      {field("data")}
      <div class="actions">
        <Button onClick={send} disabled={isRunning || !isValid}>
          {isRunning ? "Waiting for the response…" : "Send another test"}
        </Button>
      </div>
    </Dialog>
  )
}

const dialogs = { edit: EditEndpoint, test: SendTest, recover: Recover }

const healthRanges = [
  { value: "0", label: "Last 24 hours" },
  { value: "1", label: "Last 7 days" },
  { value: "2", label: "Last 30 days" },
] as const

/** A share as people read it: 100 % only when nothing failed. */
const shareText = (part: number, all: number) => `${Math.floor((part / all) * 1000) / 10} %`

/** How many attempts of a range delivered, how fast the receiver was, and what failed. */
const AttemptHealth = ({ endpoint }: { readonly endpoint: EndpointDetail }) => {
  const orgId = useOrg()
  const [range, setRange] = useChoice("range", healthRanges, "0")
  const { attempts, causes, delivered, p95_ms, since } = endpoint.health[Number(range)]!
  const to = (cause: string) =>
    orgPath(orgId, `/deliveries?${new URLSearchParams({ endpoint: endpoint.webhook_endpoint_id, cause, since })}`)
  return (
    <Card
      title="Attempts"
      actions={<Segments label="Range" value={range} options={healthRanges} onChange={setRange} />}
    >
      <span class="quiet small">
        Since <Time at={since} />
      </span>
      <dl class="counts">
        <div class="stack tight">
          <dt>Success rate</dt>
          <dd>{attempts === 0 ? "–" : shareText(delivered, attempts)}</dd>
        </div>
        <div class="stack tight">
          <dt>Attempts</dt>
          <dd>{numberText(attempts)}</dd>
        </div>
        <div class="stack tight">
          <dt title="95 of 100 responses came faster">p95</dt>
          <dd>{p95_ms === null ? "–" : durationText(p95_ms)}</dd>
        </div>
      </dl>
      {causes.length > 0 && (
        <ul class="row small" aria-label="Failed attempts by cause">
          {causes.slice(0, 8).map(({ attempts, cause }) => {
            const text = `${causeText(cause)} × ${numberText(attempts)}`
            return (
              <li key={cause} class="badge">
                {cause.endsWith("xx") ? text : <Link to={to(cause)}>{text}</Link>}
              </li>
            )
          })}
        </ul>
      )}
    </Card>
  )
}

/** What the receiver answered last, or with a status, when that was no success; and the delivery that shows it. */
const LatestFailure = ({ id, status }: { readonly id: string; readonly status?: number }) => {
  const orgId = useOrg()
  const { rows = [] } = usePages(
    "deliveries.list",
    { webhook_endpoint_id: id, limit: 100 },
    ({ deliveries }) => deliveries,
  )
  const [newest] = rows
    .filter(({ attempts, state }) => attempts > 0 && state !== "delivered")
    .filter(({ last_status }) => status === undefined || last_status === status)
    .toSorted((a, b) => Date.parse(b.updated_at) - Date.parse(a.updated_at))
  const { data } = useData(
    "deliveries.get",
    { delivery_id: newest?.delivery_id ?? "" },
    { enabled: newest !== undefined, keepsPrevious: true },
  )
  const attempt = data?.attempt_log.at(-1)
  if (data === undefined || attempt === undefined || hasSucceeded(attempt)) return null
  return (
    <span>
      Latest failure: {outcomeText(attempt)}, <Time at={attempt.started_at} isRelative />.{" "}
      <Link to={orgPath(orgId, `/deliveries/${data.delivery_id}`)}>Show the delivery</Link>
    </span>
  )
}

/** The keys of the org that verify its Ed25519 signatures, the newest first. */
const PublicKeys = () => {
  const { data } = useData("webhooks.publicKey", {})
  if (data === undefined) return <span class="skeleton w-70" />
  return (
    <>
      {data.public_keys.map((key) => (
        <Copyable key={key} text={key} label="Copy the public key" />
      ))}
    </>
  )
}

/** The settings of an endpoint, without its secrets. */
const EndpointSettings = ({ endpoint }: { readonly endpoint: EndpointDetail }) => (
  <Facts
    of={{
      URL: <Copyable text={endpoint.url} label="Copy the URL" />,
      Id: <Copyable text={endpoint.webhook_endpoint_id} label="Copy the id" />,
      Events:
        endpoint.event_types === null ? (
          "all, except those of Gatehouse itself"
        ) : (
          <span class="row">
            {endpoint.event_types.map((type) => (
              <Badge key={type} isPlain>
                {type}
              </Badge>
            ))}
          </span>
        ),
      Order: endpoint.ordered ? "one at a time, in the order of the events" : "any",
      Rate: endpoint.max_per_second === null ? "Unlimited" : `at most ${endpoint.max_per_second} attempts per second`,
      Retries:
        endpoint.retry_delays === null
          ? "the schedule of the service"
          : endpoint.retry_delays.length === 0
            ? "none"
            : `after ${endpoint.retry_delays.map((seconds) => durationText(seconds * 1000)).join(", ")}`,
      Signature: endpoint.signature === "hmac" ? "HMAC-SHA256" : "HMAC-SHA256 and Ed25519",
      "Public key": endpoint.signature === "ed25519" ? <PublicKeys /> : undefined,
      Headers: endpoint.headers?.join(", ") ?? "none",
      Body: bodies[endpoint.payload],
      "Names of headers": endpoint.header_names === "svix" ? "svix-id and the like" : undefined,
      Batches:
        endpoint.batch === null
          ? undefined
          : `up to ${endpoint.batch.max} events, collected for ${durationText(endpoint.batch.within_ms)}`,
      Channels: endpoint.channels?.join(", "),
      Filter: endpoint.filter === null ? undefined : <pre>{JSON.stringify(endpoint.filter, undefined, 2)}</pre>,
      Authorization: endpoint.auth === null ? undefined : authText(endpoint.auth),
      "External id": endpoint.external_id ?? undefined,
      Metadata: endpoint.metadata === null ? undefined : <pre>{JSON.stringify(endpoint.metadata, undefined, 2)}</pre>,
      Created: <Time at={endpoint.created_at} />,
      Changed: <Time at={endpoint.updated_at} />,
      "Audit log": useChanges(endpoint.webhook_endpoint_id),
    }}
  />
)
