import { counted } from "../../components/numbers.ts"
import { type Delivery, shownState } from "../deliveries/delivery.ts"

const maxShown = 24

const tones: Readonly<Record<string, string>> = {
  delivered: "series-good",
  retrying: "series-warn",
  failed: "series-bad",
  pending: "series-accent",
}

/** One small column for each of the newest deliveries, the newest at the right. */
export const Strip = ({ deliveries }: { readonly deliveries: ReadonlyArray<Delivery> }) => {
  if (deliveries.length === 0) return <span class="quiet">none lately</span>
  const shown = deliveries.slice(0, maxShown).toReversed()
  const count = (state: string) => shown.filter((delivery) => shownState(delivery) === state).length
  const parts = ["delivered", "retrying", "failed"].filter((state) => count(state) > 0)
  const summary = parts.map((state) => `${count(state)} ${state}`).join(", ")
  return (
    <svg
      class="strip"
      viewBox={`0 0 ${maxShown * 6} 18`}
      role="img"
      aria-label={`${counted(shown.length, "delivery", "deliveries")}${summary === "" ? "" : `: ${summary}`}`}
    >
      {shown.map((delivery, i) => (
        <rect
          key={delivery.delivery_id}
          class={tones[shownState(delivery)] ?? "series-calm"}
          x={(maxShown - shown.length + i) * 6}
          width={4}
          height={18}
          rx={1}
        />
      ))}
    </svg>
  )
}
