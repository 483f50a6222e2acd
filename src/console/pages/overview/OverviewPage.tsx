import { useMemo } from "preact/hooks"
import { Page } from "../../components/Page.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { ActiveOrgs } from "./ActiveOrgs.tsx"
import { Activity } from "./Activity.tsx"
import { FailingEndpoints } from "./FailingEndpoints.tsx"
import { Health } from "./Health.tsx"
import { Replicas } from "./Replicas.tsx"
import { type Every, ranges, useRange } from "./range.ts"

const hourMillis = 3_600_000
/** A minute less than the 30 days that the operation allows. */
const millisOf: Record<Every, number> = { minute: hourMillis, hour: 24 * hourMillis, day: 720 * hourMillis - 60_000 }

export default () => {
  const [every, setEvery] = useRange("minute")
  const since = useMemo(() => new Date(Date.now() - millisOf[every]).toISOString(), [every])
  return (
    <Page
      title="Overview"
      intro="Whether the service works, what fails, and who is affected."
      actions={<Segments label="Range" value={every} options={ranges} onChange={setEvery} />}
    >
      <Health />
      <FailingEndpoints since={since} />
      <ActiveOrgs since={since} />
      <Activity every={every} />
      <Replicas />
    </Page>
  )
}
