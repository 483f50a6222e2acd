import {
  type Done,
  hasStepped,
  type History,
  isTouched,
  isUncertain,
  lamingKinds,
  succeeded,
  type Violation,
} from "../history.ts"
import { isLinearizable, type Step } from "./linearizable.ts"

/** How long what other replicas create may be unknown to one. */
const unknownMillis = 6_000

/** Whether an org publishes strictly, and the field that its newest schema requires. */
type Rules = `${"strict" | "free"} ${string}`

const ruled = (one: Done): ReadonlyArray<Step<Rules>> => {
  const begin = one.tries[0]?.start ?? 0
  return one.tries.map((each): Step<Rules> => {
    const { field, strict } = one.args as { readonly field: string; readonly strict: boolean }
    const change = (state: Rules): ReadonlyArray<Rules> => {
      const [mode, required] = state.split(" ") as ["strict" | "free", string]
      if (one.kind === "setStrict") return [`${strict ? "strict" : "free"} ${required}`]
      if (one.kind === "setSchema") return [`${mode} ${field}`]
      const isRefused = mode === "strict" && required !== field
      return isUncertain(each) || isRefused === (each.status === 400) ? [state] : []
    }
    const isRead = one.kind === "strictPublish"
    // What a try without an answer has published is answered again, whatever the schema is then.
    return { from: isRead ? begin : each.start, to: isUncertain(each) ? Infinity : each.end, after: change, isRead }
  })
}

/** A setting and a catalogue hold from their answers on, at every replica. */
export const strict = ({ done, endAt }: History): ReadonlyArray<Violation> => {
  const kinds = new Set(["setStrict", "setSchema", "strictPublish"])
  const ofTenants = Map.groupBy(
    done.filter(({ kind }) => kinds.has(kind)),
    ({ tenant }) => tenant,
  )
  return [...ofTenants].flatMap(([tenant, own]) =>
    isLinearizable<Rules>(own.flatMap(ruled), ["free -"])
      ? []
      : [{ oracle: "strict", at: endAt, what: `no order explains what ${tenant} could publish` }],
  )
}

/**
 * A limit of an org is exceeded at most by what other replicas create in the same five seconds, and nobody is refused
 * while there is room.
 */
export const orgLimits = (history: History): ReadonlyArray<Violation> => {
  const { done } = history
  const ofTenants = Map.groupBy(
    done.filter(({ kind }) => kind === "createCounted"),
    ({ tenant }) => tenant,
  )
  return [...ofTenants].flatMap(([tenant, own]) => {
    const limits = done.filter((one) => one.kind === "limitOrg" && one.tenant === tenant)
    const limitsAt = (from: number, to: number) => {
      const settled = limits.filter((one) => succeeded(one) && one.end < from).at(-1)
      const all = limits.filter((one) => one === settled || (one.start <= to && one.end >= from))
      return all.map(({ args }) => Number(args["limit"]))
    }
    const replicaOf = ({ tries }: Done) => tries.at(-1)?.replica
    return own.flatMap((one): ReadonlyArray<Violation> => {
      const { end, start, status } = one
      // The key that asks.
      const base = one.args["limited"] === "keys" ? 1 : 0
      const says = (what: string) => [{ oracle: "limits of orgs", at: end, what: `${tenant} ${what}` }]
      const others = own.filter((other) => other !== one)
      if (status === 409) {
        // What is refused while another replica counts may find room a moment later.
        const most = others.filter((other) => other.start < end && (succeeded(other) || other.tries.some(isUncertain)))
        const open = others.filter((other) => other.start < end && other.end > start)
        const least = Math.min(...limitsAt(start - unknownMillis, end))
        if (base + most.length + open.length >= least) return []
        return says(`was refused with ${most.length} of ${least}`)
      }
      if (!succeeded(one)) return []
      const isKnown = (other: Done) =>
        succeeded(other) && other.end < start - (replicaOf(other) === replicaOf(one) ? 0 : unknownMillis)
      const known = base + others.filter(isKnown).length
      const most = Math.max(...limitsAt(start - unknownMillis, end))
      const replica = replicaOf(one)!
      const isLamed = isTouched(history, lamingKinds, replica, start - 60_000, end) || hasStepped(history, end)
      return known < most || isLamed || one.tries.length > 1 ? [] : says(`got one more than ${most} of ${known}`)
    })
  })
}

/** What is retried by a filter waits while its org is full. */
export const fullOrgs = ({ done }: History): ReadonlyArray<Violation> =>
  done.flatMap(({ args, body, end, kind, status, tenant }) => {
    const [count, limit] = [body?.jobs?.length ?? 0, Number(args["limit"])]
    if (kind !== "unfinished" || status !== 200 || count <= limit) return []
    return [{ oracle: "limits of orgs", at: end, what: `${tenant} has ${count} unfinished jobs of ${limit}` }]
  })

/** The audit log until a time has all entries from before it. */
export const audit = ({ done }: History): ReadonlyArray<Violation> =>
  done.flatMap(({ args, body, end, kind, status, tenant }) => {
    if (kind !== "readAudit" || status !== 200) return []
    const shown = new Set(body.entries!.map(({ id }) => id))
    const missing = ((args["ids"] ?? []) as ReadonlyArray<string>).find((id) => !shown.has(id))
    return missing === undefined ? [] : [{ oracle: "audit", at: end, what: `${tenant} misses the entry ${missing}` }]
  })

/** How long the look at an alert may take to come, with what its target needs to be told. */
const tellMillis = 130_000

/** What an alert watches is told: at least once, and while nothing is wrong not twice. A change of an alert stays. */
export const alerts = (history: History): ReadonlyArray<Violation> => {
  const { done, endAt, faults, received } = history
  return done
    .filter((one) => one.kind === "createAlert" && succeeded(one))
    .flatMap(({ args, tenant }): ReadonlyArray<Violation> => {
      const says = (at: number, what: string) => [{ oracle: "alerts", at, what: `the alert of ${tenant} ${what}` }]
      const told = received.filter(({ url }) => url === args["told"])
      const isOk = ({ status }: (typeof told)[number]) => status !== undefined && status < 300
      const gone = received.find(({ status, url }) => status === 410 && url.includes(`//${tenant}-gone`))
      if (gone === undefined) return told.length === 0 ? [] : says(told[0]!.at, "was told, and nothing is wrong")
      const isCalm = (from: number, to: number) => !faults.some(({ end, start }) => start <= to && end >= from)
      const isLate = !told.some((one) => one.at < gone.at + tellMillis)
      if (endAt > gone.at + tellMillis && isLate && isCalm(gone.at - 60_000, gone.at + tellMillis))
        return says(gone.at, `was not told in ${tellMillis / 1000} s`)
      const shown = done.find(({ kind, tenant: by }) => kind === "readAlerts" && by === tenant)
      if (shown?.status === 200 && shown.body.alerts![0]!.name !== shown.args["name"])
        return says(shown.end, "lost a change that was made while it was told")
      const [first, second] = told.filter(isOk)
      if (second === undefined || !isCalm(first!.at - 60_000, second.at)) return []
      // What is changed meanwhile is looked at anew.
      if (done.some(({ kind, tenant: by }) => kind === "changeAlert" && by === tenant)) return []
      return says(second.at, "was told twice")
    })
}
