import { useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Stat } from "../../components/Page.tsx"
import { ListCard } from "../../components/Table.tsx"
import { durationText, useNow } from "../../components/Time.tsx"
import { numberText } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { orgPath } from "../../navigation/router.tsx"

/** What waits and runs in the org of the page. */
export const useQueue = () =>
  useData("jobs.queue", {}, { isLive: false, refetchMillis: 5_000, enabled: useMay()("jobs.queue") }).data

const minutes = "last 5 minutes"

/** How long the oldest job waits, what came in and went out, and the concurrency keys for which most jobs wait. */
export const Queue = () => {
  const orgId = useOrg()
  const queue = useQueue()
  const now = useNow(1_000)
  const every = { every: "minute", orgId } as const
  const { data } = useData("activity.overview", every, { isLive: false, refetchMillis: 10_000 })
  if (queue === undefined || queue.workflows.length === 0) return null
  // This minute, and the five before it.
  const ended = data?.jobs
    .slice(-6)
    .reduce((sum, { canceled, completed, failed }) => sum + canceled + completed + failed, 0)
  return (
    <>
      <div class="grid-3">
        <Stat label="Longest wait" note="of a job that is due">
          {queue.oldest_due_at === null
            ? "None is due"
            : durationText(Math.max(0, now - Date.parse(queue.oldest_due_at)))}
        </Stat>
        <Stat label="Created" note={minutes}>
          {queue.created < 10_000 ? numberText(queue.created) : "10,000+"}
        </Stat>
        <Stat label="Finished" note={minutes}>
          {ended === undefined ? "–" : numberText(ended)}
        </Stat>
      </div>
      {queue.keys.length > 0 && (
        <ListCard
          title="Keys for which most jobs wait"
          caption="Concurrency keys"
          rows={queue.keys}
          rowKey={(one) => `${one.workflow} ${one.concurrency_key}`}
          empty={null}
          columns={[
            { title: "Key", cell: (one) => <span class="anywhere">{one.concurrency_key}</span> },
            {
              title: "Workflow",
              link: ({ workflow }) => [orgPath(orgId, `/jobs?workflow=${encodeURIComponent(workflow)}`), workflow],
            },
            { title: "Waiting", align: "end", cell: ({ queued }) => numberText(queued) },
            { title: "Running", align: "end", cell: ({ running }) => numberText(running) },
          ]}
        />
      )}
    </>
  )
}
