import { Button } from "./Button.tsx"
import { Empty } from "./Page.tsx"

interface NoMatchProps {
  /** What the list has. */
  readonly noun: string
  /** Reads further, while the list goes on. */
  readonly more: (() => void) | undefined
}

/** Said in the place of no rows, when the reader has filtered them. */
export const NoMatch = ({ more, noun }: NoMatchProps) => (
  <Empty icon="search" title={more === undefined ? `No ${noun} matches` : `No ${noun} matches so far`}>
    <p>Change the filters, or clear them.</p>
    {more !== undefined && <Button onClick={more}>Look further</Button>}
  </Empty>
)
