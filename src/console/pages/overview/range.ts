import { useSearch } from "../../navigation/router.tsx"

export type Every = "minute" | "hour" | "day"

/** The ranges of an overview, by the length of their intervals. */
export const ranges: ReadonlyArray<{ readonly value: Every; readonly label: string }> = [
  { value: "minute", label: "Last hour" },
  { value: "hour", label: "Last day" },
  { value: "day", label: "Last 30 days" },
]
const isEvery = (text: string | undefined): text is Every => ranges.some(({ value }) => value === text)

/** The range in the address of the page. */
export const useRange = (usual: Every) => {
  const [text, setText] = useSearch("every")
  const every = isEvery(text) ? text : usual
  return [every, (value: Every) => setText(value === usual ? undefined : value)] as const
}
