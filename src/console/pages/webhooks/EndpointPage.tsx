import { useState } from "preact/hooks"
import { State } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { ErrorBox, Notice } from "../../components/ErrorBox.tsx"
import { numberText } from "../../components/numbers.ts"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { Time } from "../../components/Time.tsx"
import { useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { useOrg } from "../../navigation/org.ts"
import { Link, orgPath, useParam, useSearch } from "../../navigation/router.tsx"
import { DeliveryTable } from "../deliveries/DeliveryTable.tsx"
import { deliveryStates } from "../deliveries/delivery.ts"
import { Activate, DeleteEndpoint, Deactivate } from "./EndpointActions.tsx"
import { EditEndpoint } from "./EndpointForm.tsx"
import { EndpointHealth } from "./EndpointHealth.tsx"
import { EndpointSettings } from "./EndpointSettings.tsx"
import { type EndpointDetail, reasonText, shortUrl } from "./endpoints.ts"
import { LatestFailure } from "./LatestFailure.tsx"
import { Recover } from "./Recover.tsx"
import { SendTest } from "./SendTest.tsx"

const stateOf = ({ active, failing_since }: EndpointDetail) =>
  !active ? "deactivated" : failing_since === null ? "active" : "failing"

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
        {deactivated_reason !== "by_request" && <LatestFailure id={endpoint.webhook_endpoint_id} />}
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
        <div key={state}>
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
    <Card
      title="Deliveries"
      isPadded={false}
      actions={<Link to={orgPath(orgId, `/deliveries?endpoint=${id}`)}>Show all and filter</Link>}
    >
      <DeliveryTable
        {...pages}
        isOfEndpoint
        empty={
          <Empty icon="send" title="Nothing was delivered yet">
            <p>Send a test to see what the receiver answers. The next event of its types comes here.</p>
          </Empty>
        }
      />
    </Card>
  )
}

type Open = "edit" | "test" | "recover" | "deactivate" | "delete"

/** One endpoint: its health, its settings, its deliveries, and what can be done. */
export default () => {
  const id = useParam("endpointId")
  const orgId = useOrg()
  const may = useMay()
  // A delivery leads here, to recover what came since then.
  const [since, setSince] = useSearch("recover")
  const [open, setOpen] = useState<Open | undefined>(since === undefined ? undefined : "recover")
  const { data: endpoint, error, refetch } = useData("webhooks.get", { id })
  const crumbs = [{ to: orgPath(orgId, "/endpoints"), label: "Endpoints" }]
  if (endpoint === undefined && error !== null) {
    return (
      <Page title="Endpoint" crumbs={crumbs}>
        <ErrorBox error={error} onRetry={refetch} />
      </Page>
    )
  }
  const close = () => {
    setOpen(undefined)
    if (since !== undefined) setSince(undefined)
  }
  const actions = endpoint !== undefined && (
    <>
      {may("webhooks.test") && (
        <Button icon="send" look="primary" onClick={() => setOpen("test")}>
          Send a test
        </Button>
      )}
      {may("deliveries.recover") && endpoint.active && (
        <Button icon="repeat" onClick={() => setOpen("recover")}>
          Recover
        </Button>
      )}
      {may("webhooks.update") && <Button onClick={() => setOpen("edit")}>Edit</Button>}
      {may("webhooks.update") && endpoint.active && (
        <Button icon="pause" onClick={() => setOpen("deactivate")}>
          Deactivate
        </Button>
      )}
      {may("webhooks.delete") && (
        <Button icon="trash" look="danger" aria-label="Delete the endpoint" onClick={() => setOpen("delete")} />
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
      {endpoint === undefined ? (
        <Skeleton lines={3} />
      ) : (
        <>
          <Health endpoint={endpoint} onRecover={() => setOpen("recover")} />
          <div class="grid-2">
            <Card title="Health">
              <EndpointHealth id={id} />
              <Counts endpoint={endpoint} />
            </Card>
            <Card title="Settings">
              <EndpointSettings endpoint={endpoint} />
            </Card>
          </div>
        </>
      )}
      <Deliveries id={id} />
      {endpoint !== undefined && open === "edit" && <EditEndpoint endpoint={endpoint} onClose={close} />}
      {open === "test" && <SendTest id={id} onClose={close} />}
      {open === "recover" && endpoint !== undefined && (since === undefined || endpoint.active) && (
        <Recover endpoint={endpoint} since={since} onClose={close} />
      )}
      {open === "deactivate" && <Deactivate id={id} onClose={close} />}
      {endpoint !== undefined && open === "delete" && <DeleteEndpoint endpoint={endpoint} onClose={close} />}
    </Page>
  )
}
