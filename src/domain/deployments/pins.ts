import type { Pins } from "../projects/RepositoryLink.ts"
import type { CiRun } from "./CiRun.ts"

/** Compares `owner/repo/path` with a pin that is such a text, or a path in the run's repository. */
const isSameFile = (file: string, pin: string, { owner, repo }: CiRun) => {
  const folder = `${owner}/${repo}/`
  return (
    isSamePath(file, pin) || (isSameText(file.slice(0, folder.length), folder) && file.slice(folder.length) === pin)
  )
}

const isSameText = (a: string, b: string) => a.toLowerCase() === b.toLowerCase()

/** Owners and repositories compare without case, and the path in the repository with it. */
const isSamePath = (file: string, pin: string) => {
  const start = /^[^/]+\/[^/]+\//.exec(pin)?.[0].length ?? 0
  return isSameText(file.slice(0, start), pin.slice(0, start)) && file.slice(start) === pin.slice(start)
}

/**
 * Why a run does not meet the pinned workflow and environment, in a sentence; `null` when it does. Only GitHub's names
 * of environments compare without case.
 */
export const unmetPin = (run: CiRun, { environment, workflow }: Pins): string | null => {
  if (workflow !== null && (run.workflowFile === null || !isSameFile(run.workflowFile, workflow, run))) {
    return `The link pins the workflow ${workflow}, and the run is of ${run.workflowFile ?? "none that its token names"}.`
  }
  const isMet =
    run.provider === "github"
      ? isSameText(run.environment ?? "", environment ?? "")
      : (run.environment ?? "") === (environment ?? "")
  if (environment === null || isMet) return null
  return `The link pins the environment ${environment}, and the run is in ${run.environment ?? "none"}.`
}
