import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { Project } from "../domain/projects/Project.ts"
import type { RepositoryLink } from "../domain/projects/RepositoryLink.ts"
import type { ProjectDocs } from "../domain/docs/ProjectDocs.ts"
import { ask, call, callPages } from "./callOperation.ts"
import { given, group, page, switchFlag, textArgument, textFlag, time } from "./flags.ts"
import { op } from "./operation.ts"
import { columns, plain, usage } from "./output.ts"

const one = { args: { project: "projectId" } } as const
const projectArgument = textArgument("project", "The id of the project")

const showLink = (link: RepositoryLink) =>
  columns([link], {
    PROVIDER: "provider",
    REPOSITORY: ({ hostOwner, hostRepo }) => `${hostOwner}/${hostRepo}`,
    WORKFLOW: "workflow",
    ENVIRONMENT: "environment",
  })

const showDocs = (docs: ProjectDocs) => ({
  out: columns([docs], {
    STATE: "state",
    PAGES: ({ stored }) => stored?.pages,
    BYTES: ({ stored }) => stored?.bytes,
    DEPLOYMENT: ({ stored }) => stored?.deploymentId,
    "STORED AT": ({ stored }) => stored?.at,
    PUBLIC: "public",
    QUESTIONS: ({ keepQuestions }) => (keepQuestions ? "kept" : "not kept"),
    ZIP: "docsZipUrl",
  }),
  note: plain(docs.failure?.error ?? ""),
})

const found = (isNotFound: boolean) => (isNotFound ? { found: false } : {})

const questions = Command.make(
  "questions",
  {
    project: projectArgument,
    notFound: switchFlag("not-found", "Only questions that found nothing"),
    mostAsked: switchFlag(
      "most-asked",
      "Count equal questions, the most asked first; not with --thumb, --cursor or --all",
    ),
    thumb: Flag.Literals("thumb", ["up", "down"]).pipe(
      Flag.withDescription("Only questions whose answer got this feedback"),
      Flag.optional,
    ),
    since: time("since").pipe(Flag.withDescription("Only questions from this time on"), Flag.optional),
    until: time("until").pipe(Flag.withDescription("Only questions before this time"), Flag.optional),
    ...page,
  },
  Effect.fnUntraced(function* ({ mostAsked, notFound, project, since, thumb, until, ...page }) {
    const filter = { ...found(notFound), ...given({ since, until }) }
    const params = { projectId: project }
    if (!mostAsked) {
      return yield* callPages(
        page,
        (gatehouse, query) => gatehouse.docs.questions({ params, query: { ...query, ...filter, ...given({ thumb }) } }),
        ({ questions }) =>
          columns(questions, { "ASKED AT": "askedAt", FOUND: "found", THUMB: "thumb", QUESTION: "question" }),
      )
    }
    if (page.all || Option.isSome(page.cursor) || Option.isSome(thumb))
      return yield* usage("--most-asked takes no --thumb, --cursor or --all")
    const query = { limit: page.limit, ...filter }
    return yield* call(
      (gatehouse) => gatehouse.docs.mostAsked({ params, query }),
      ({ questions }) =>
        columns(questions, {
          TIMES: "times",
          "NOT FOUND": "notFound",
          UP: "thumbsUp",
          DOWN: "thumbsDown",
          QUESTION: "question",
        }),
    )
  }),
).pipe(Command.withDescription("List what readers ask, newest first, or the most asked"))

const docs = group("docs", "The documentation of a project, for chats and assistants", [
  op("docs.put", {
    args: { project: "projectId", "zip-url": "docsZipUrl" },
    name: "set",
    about: "Store the documentation of a project, and fetch it for each new current deployment",
    examples: [
      "projects docs set 01KAHBMKZ3D2X7S5QN8W4V6R9V https://docs.example.com/docs.zip --docs-url https://docs.example.com/ --keep-questions",
    ],
    show: showDocs,
  }),
  op("docs.get", { ...one, show: showDocs }),
  questions,
  op("docs.eraseQuestions", {
    ...one,
    about: "Erase what readers have asked, for good",
    show: (_, { projectId }) => ({ out: projectId, note: "The questions of the project's readers are erased." }),
  }),
  op("docs.remove", {
    ...one,
    show: (_, { projectId }) => ({
      out: projectId,
      note: "The documentation is removed, with the questions of its readers.",
    }),
  }),
])

const projectTable = (projects: ReadonlyArray<Project>) =>
  columns(projects, {
    PROJECT: "projectId",
    NAME: "name",
    REPOSITORY: ({ hostOwner, hostRepo }) => hostOwner && `${hostOwner}/${hostRepo}`,
    BRANCH: "defaultBranch",
    "CURRENT DEPLOYMENT": "currentDeploymentId",
    ORG: "orgId",
  })

const get = op("projects.get", { ...one, show: (project) => projectTable([project]) })

export const projects = group("projects", "Projects, which have keys and deployments", [
  op("projects.create", {
    args: { name: "name" },
    about: "Create a project, in the default org unless --org is set",
    examples: ["projects create docs"],
    show: ({ orgId, projectId }) => ({
      out: projectId,
      note: `The project is created in the org ${orgId}. To create a key: gatehouse keys create ci --project ${projectId}`,
    }),
  }),
  op("projects.list", { show: ({ projects }) => projectTable(projects) }),
  get,
  op("projects.update", {
    ...one,
    omit: ["hostOwner", "hostRepo"],
    show: (project) => ({ out: projectTable([project]), note: "The project is changed." }),
  }),
  op("projects.putLink", {
    ...one,
    name: "link",
    about: "Link a project to a repository, with pins; or show its link",
    examples: ["projects link 01KAHBMKZ3D2X7S5QN8W4V6R9V octo-org/docs --environment production"],
    omit: ["provider", "hostOwner", "hostRepo"],
    more: {
      repository: Argument.optional(textArgument("repository", "The repository as owner/name; absent: show the link")),
      provider: textFlag("provider", "The CI provider of the repository (default: github)"),
    },
    run: (send, fields, { provider, repository }) => {
      if (Option.isNone(repository)) {
        const { projectId, ...pins } = fields
        if (Option.isSome(provider) || Object.keys(pins).length > 0)
          return usage("--provider, --workflow and --environment need the repository, as owner/name")
        const params = { projectId }
        return call((gatehouse) => gatehouse.projects.getLink({ params }), showLink)
      }
      const slash = repository.value.lastIndexOf("/")
      if (slash < 1) return usage("The repository must have the form owner/name")
      const [hostOwner, hostRepo] = [repository.value.slice(0, slash), repository.value.slice(slash + 1)]
      return send({ ...fields, provider: Option.getOrElse(provider, () => "github"), hostOwner, hostRepo })
    },
    show: showLink,
  }),
  op("projects.removeLink", {
    ...one,
    name: "unlink",
    show: (_, { projectId }) => ({ out: projectId, note: "No repository is linked to the project." }),
  }),
  docs,
  op("projects.remove", {
    ...one,
    show: (_, { projectId }) => ({ out: projectId, note: "The project is deleted with everything in it." }),
  }),
])

const listDeployments = Command.make(
  "list",
  {
    project: projectArgument,
    branch: textFlag("branch", "Only deployments of this branch"),
    preview: Flag.Boolean("preview").pipe(
      Flag.withDescription("Only previews; --no-preview: no previews"),
      Flag.optional,
    ),
    ...page,
  },
  Effect.fnUntraced(function* ({ branch, preview, project, ...page }) {
    const { body } = yield* ask((gatehouse) => gatehouse.projects.get({ params: { projectId: project } }))
    yield* callPages(
      page,
      (gatehouse, query) =>
        gatehouse.deployments.list({
          params: { projectId: project },
          query: { ...query, ...given({ branch, preview }) },
        }),
      ({ deployments }) =>
        columns(deployments, {
          DEPLOYMENT: "id",
          CURRENT: ({ id }) => id === body.currentDeploymentId,
          BRANCH: "branch",
          PREVIEW: "preview",
          COMMIT: ({ sha }) => sha.slice(0, 12),
          PROVIDER: "provider",
          RUN: ({ runAttempt, runId }) => `${runId}.${runAttempt}`,
          ACTOR: "actor",
          CREATED: "createdAt",
        }),
    )
  }),
).pipe(Command.withDescription("List the deployments of a project, newest first"))

export const deployments = group("deployments", "Deployments that CI runs have registered", [
  listDeployments,
  op("deployments.promote", {
    args: { project: "projectId", deployment: "deploymentId" },
    examples: ["deployments promote 01KAHBMKZ3D2X7S5QN8W4V6R9V 01KAHBMKZ3D2X7S5QN8W4V6R9T"],
    show: ({ currentDeploymentId, projectId }) => ({
      out: currentDeploymentId ?? "",
      note: `The deployment is current for the project ${projectId}.`,
    }),
  }),
])
