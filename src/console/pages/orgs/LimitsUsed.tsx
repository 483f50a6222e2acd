import type { Answer } from "../../client/Operations.ts"
import { limitLabels, limitNames, limitText, limitTone } from "./limits.ts"

/** What an org uses of each limit. */
export const LimitsUsed = ({ org: { limits, used } }: { readonly org: Answer<"orgs.get"> }) => (
  <ul class="limits">
    {limitNames.map((name) => (
      <li key={name} class="stack tight">
        <span class="row between small">
          <span>{limitLabels[name]}</span>
          <span class="quiet number">
            {limitText(name, used[name])} of {limitText(name, limits[name])}
          </span>
        </span>
        <progress
          class={`bar ${limitTone(used[name], limits[name]) ?? ""}`}
          aria-label={`${limitLabels[name]} used`}
          value={Math.min(used[name], limits[name])}
          max={Math.max(1, limits[name])}
        />
      </li>
    ))}
  </ul>
)
