import type { ComponentType } from "preact"
import { useEffect, useState } from "preact/hooks"
import { ErrorBox } from "../components/ErrorBox.tsx"
import { Skeleton } from "../components/Skeleton.tsx"
import type { Route } from "../pages/routes.ts"

const loaded = new Map<string, ComponentType>()

/** A page, loaded when it is first shown. */
export const LazyPage = ({ route }: { readonly route: Route }) => {
  const [, setCount] = useState(0)
  const [error, setError] = useState<Error>()
  const Loaded = loaded.get(route.path)
  const load = () => {
    setError(undefined)
    route.page().then(
      (file) => {
        loaded.set(route.path, file.default)
        setCount((count) => count + 1)
      },
      (error: Error) => setError(error),
    )
  }
  useEffect(() => {
    if (Loaded === undefined) load()
  }, [route.path])
  if (Loaded !== undefined) return <Loaded />
  return error === undefined ? <Skeleton lines={3} /> : <ErrorBox error={error} onRetry={() => location.reload()} />
}
