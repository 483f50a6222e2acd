import { useData } from "../../client/queries.ts"
import { Filter } from "../../components/Form.tsx"
import { useSearch } from "../../navigation/router.tsx"

/** Filters by a type that was seen. */
export const TypeFilter = () => {
  const [type] = useSearch("type")
  const { data } = useData("events.types", {})
  const types = new Set([...(data?.types ?? []).map(({ type }) => type), ...(type === undefined ? [] : [type])])
  return <Filter label="Event type" name="type" options={[...types].map((value) => ({ value, label: value }))} />
}
