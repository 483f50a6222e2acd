import { type Done, type History, isUncertain, succeeded, type Violation } from "../history.ts"
import { isLinearizable, type Step } from "./linearizable.ts"

/** The run whose deployment is current, and the newest that ever was. */
type State = `${number} ${number}`

const registered =
  (run: number) =>
  (state: State): ReadonlyArray<State> => {
    const [current, newest] = state.split(" ").map(Number) as [number, number]
    return [run > newest ? `${run} ${run}` : `${current} ${newest}`]
  }

const promoted =
  (run: number) =>
  (state: State): ReadonlyArray<State> => [`${run} ${Math.max(run, Number(state.split(" ")[1]))}`]

/** A late run does not turn production back, and a run has one deployment. */
const project = (id: string, own: ReadonlyArray<Done>, history: History): ReadonlyArray<string> => {
  const row = history.rows["projects"]!.find((one) => one["id"] === id)
  if (row === undefined) return [`project ${id} has registered a deployment and is not stored`]
  const runs = history.rows["deployments"]!.filter((one) => one["project_id"] === id)
  const numbers = runs.map((one) => Number(one["run_id"]))
  const wrong = new Set(numbers).size < numbers.length ? [`project ${id} has two deployments of one run`] : []
  const lost = own.find((one) => succeeded(one) && !numbers.includes(Number(one.args["runId"])))
  if (lost !== undefined) wrong.push(`the deployment of run ${String(lost.args["runId"])} is not stored`)
  const steps = own.flatMap((one): ReadonlyArray<Step<State>> => {
    const run = Number(one.args["runId"])
    const after = one.kind === "register" ? registered(run) : promoted(run)
    return one.tries
      .filter((each) => each.status === 200 || isUncertain(each))
      .map((each) => ({ from: each.start, to: isUncertain(each) ? Infinity : each.end, after }))
  })
  const current = runs.find((one) => one["id"] === row["current_deployment_id"])?.["run_id"]
  steps.push({
    from: history.endAt,
    to: history.endAt,
    after: (state) => (state.split(" ")[0] === String(current ?? 0) ? [state] : []),
  })
  return isLinearizable(steps, ["0 0"])
    ? wrong
    : [...wrong, `project ${id} ends with the deployment of run ${String(current)}, which no order explains`]
}

/** What CI registers is kept, once, and the newest run or the promoted one is current. */
export const deployments = (history: History): ReadonlyArray<Violation> => {
  const deleted = new Set(history.done.filter(({ kind }) => kind === "deleteOrg").map(({ tenant }) => tenant))
  const registrations = history.done.filter((one) => one.kind === "register" && !deleted.has(one.tenant))
  const projects = new Map(
    registrations
      .filter(succeeded)
      .map(({ args, body }) => [`${String(args["owner"])}/${String(args["name"])}`, body.projectId]),
  )
  return [...projects].flatMap(([name, id]) => {
    const own = history.done.filter(
      ({ args, kind }) =>
        (kind === "register" && `${String(args["owner"])}/${String(args["name"])}` === name) ||
        (kind === "promote" && args["projectId"] === id),
    )
    return project(id, own, history).map((what) => ({ oracle: "deployments", at: history.endAt, what }))
  })
}

/** The holder of a portal has no more keys than the link allows, which is one. */
export const holders = ({ done }: History): ReadonlyArray<Violation> =>
  [
    ...Map.groupBy(
      done.filter((one) => one.kind === "holderKey" && succeeded(one)),
      ({ args }) => args["holder"],
    ),
  ].flatMap(([holder, own]) =>
    own.length < 2 ? [] : [{ oracle: "holders", at: own[1]!.end, what: `${String(holder)} made ${own.length} keys` }],
  )

/** A portal link opens one session. */
export const portals = ({ done }: History): ReadonlyArray<Violation> =>
  [
    ...Map.groupBy(
      done.filter((one) => one.kind === "openPortal" && succeeded(one)),
      ({ args }) => args["link"],
    ),
  ].flatMap(([link, own]) =>
    own.length < 2
      ? []
      : [{ oracle: "portals", at: own[1]!.end, what: `the link ${String(link)} was opened ${own.length} times` }],
  )
