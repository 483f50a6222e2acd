import { Effect, Option } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { RepositoryLink } from "../domain/projects/RepositoryLink.ts"
import type { ProjectDocs } from "../domain/docs/ProjectDocs.ts"
import type { Project } from "../domain/projects/Project.ts"
import { ask, call, callPages } from "./call.ts"
import { given, page, time } from "./flags.ts"
import { table, usage } from "./output.ts"

/** The argument of commands about one project. */
const project = Argument.String("project").pipe(Argument.withDescription("The id of the project"))

const pin = (name: string, description: string) =>
  Flag.String(name).pipe(Flag.withDescription(description), Flag.optional)

const linkOutput = ({ environment, hostOwner, hostRepo, provider, workflow }: RepositoryLink) => ({
  out: table(
    ["PROVIDER", "REPOSITORY", "WORKFLOW", "ENVIRONMENT"],
    [[provider, `${hostOwner}/${hostRepo}`, workflow, environment]],
  ),
  note: "",
})

/** Links a project to a repository, or shows its link. */
const link = Command.make(
  "link",
  {
    project,
    repository: Argument.String("repository").pipe(
      Argument.withDescription("The repository as owner/name; absent: show the link"),
      Argument.optional,
    ),
    provider: Flag.String("provider").pipe(
      Flag.withDescription("The CI provider of the repository (default: github)"),
      Flag.withDefault("github"),
    ),
    workflow: pin("workflow", "The only workflow whose runs may become current: .github/workflows/deploy.yml"),
    environment: pin("environment", "The only environment whose runs may become current: production"),
  },
  Effect.fnUntraced(function* ({ environment, project, provider, repository, workflow }) {
    const params = { projectId: project }
    if (Option.isNone(repository)) {
      return yield* call((gatehouse) => gatehouse.projects.getLink({ params }), linkOutput)
    }
    const slash = repository.value.lastIndexOf("/")
    if (slash < 1) return yield* usage("The repository must have the form owner/name")
    const [hostOwner, hostRepo] = [repository.value.slice(0, slash), repository.value.slice(slash + 1)]
    const payload = { provider, hostOwner, hostRepo, ...given({ workflow, environment }) }
    return yield* call((gatehouse) => gatehouse.projects.putLink({ params, payload }), linkOutput)
  }),
).pipe(
  Command.withDescription("Link a project to a repository, with pins; or show its link"),
  Command.withExamples([
    { command: "gatehouse projects link 01KAHBMKZ3D2X7S5QN8W4V6R9V octo-org/docs --environment production" },
  ]),
)

/** Removes the link of a project. */
const unlink = Command.make("unlink", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.projects.removeLink({ params: { projectId: project } }),
    () => ({ out: project, note: "No repository is linked to the project." }),
  ),
).pipe(Command.withDescription("Remove the link of a project"))

const docsOutput = ({ docsZipUrl, failure, keepQuestions, public: isPublic, state, stored }: ProjectDocs) => ({
  out: table(
    ["STATE", "PAGES", "BYTES", "DEPLOYMENT", "STORED AT", "PUBLIC", "QUESTIONS", "ZIP"],
    [
      [
        state,
        stored?.pages ?? null,
        stored?.bytes ?? null,
        stored?.deploymentId ?? null,
        stored?.at ?? null,
        isPublic,
        keepQuestions ? "kept" : "not kept",
        docsZipUrl,
      ],
    ],
  ),
  note: failure === null ? "" : failure.error,
})

const set = Command.make(
  "set",
  {
    project,
    zipUrl: Argument.String("zip-url").pipe(
      Argument.withDescription("The URL of the zip; {deployment} and {sha} stand for the current deployment"),
    ),
    docsUrl: Flag.String("docs-url").pipe(
      Flag.withDescription("The address of the documentation's site, for links to its pages"),
      Flag.optional,
    ),
    public: Flag.Boolean("public").pipe(
      Flag.withDescription("Let anyone read the stored documentation"),
      Flag.withDefault(false),
    ),
    keepQuestions: Flag.Boolean("keep-questions").pipe(
      Flag.withDescription("Keep the questions of readers"),
      Flag.withDefault(false),
    ),
  },
  Effect.fnUntraced(function* ({ docsUrl, keepQuestions, project, public: isPublic, zipUrl }) {
    const payload = { docsZipUrl: zipUrl, public: isPublic, keepQuestions, ...given({ docsUrl }) }
    yield* call((gatehouse) => gatehouse.docs.put({ params: { projectId: project }, payload }), docsOutput)
  }),
).pipe(
  Command.withDescription("Store the documentation of a project, and fetch it for each new current deployment"),
  Command.withExamples([
    {
      command:
        "gatehouse projects docs set 01KAHBMKZ3D2X7S5QN8W4V6R9V https://docs.example.com/docs.zip --docs-url https://docs.example.com/ --keep-questions",
    },
  ]),
)

const showDocs = Command.make("get", { project }, ({ project }) =>
  call((gatehouse) => gatehouse.docs.get({ params: { projectId: project } }), docsOutput),
).pipe(Command.withDescription("Show the documentation of a project, and whether it is stored"))

const removeDocs = Command.make("delete", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.docs.remove({ params: { projectId: project } }),
    () => ({ out: project, note: "The documentation is removed, with the questions of its readers." }),
  ),
).pipe(Command.withDescription("Remove the documentation of a project and the questions of its readers, for good"))

const found = (isNotFound: boolean) => (isNotFound ? { found: false } : {})

const questions = Command.make(
  "questions",
  {
    project,
    notFound: Flag.Boolean("not-found").pipe(
      Flag.withDescription("Only questions that found nothing"),
      Flag.withDefault(false),
    ),
    mostAsked: Flag.Boolean("most-asked").pipe(
      Flag.withDescription("Count equal questions, the most asked first; takes --limit"),
      Flag.withDefault(false),
    ),
    thumb: Flag.Literals("thumb", ["up", "down"]).pipe(
      Flag.withDescription("Only questions whose answer got this feedback; not with --most-asked"),
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
          table(
            ["ASKED AT", "FOUND", "THUMB", "QUESTION"],
            questions.map(({ askedAt, found, question, thumb }) => [askedAt, found, thumb, question]),
          ),
      )
    }
    const query = { limit: page.limit, ...filter }
    return yield* call(
      (gatehouse) => gatehouse.docs.mostAsked({ params, query }),
      ({ questions }) => ({
        out: table(
          ["TIMES", "NOT FOUND", "UP", "DOWN", "QUESTION"],
          questions.map(({ notFound, question, thumbsDown, thumbsUp, times }) => [
            times,
            notFound,
            thumbsUp,
            thumbsDown,
            question,
          ]),
        ),
        note: "",
      }),
    )
  }),
).pipe(Command.withDescription("List what readers ask, newest first, or the most asked"))

const erase = Command.make("erase-questions", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.docs.eraseQuestions({ params: { projectId: project } }),
    () => ({ out: project, note: "The questions of the project's readers are erased." }),
  ),
).pipe(Command.withDescription("Erase what readers have asked, for good"))

/** Documentation that is stored with a project. */
const docs = Command.make("docs").pipe(
  Command.withDescription("The documentation of a project, for chats and assistants"),
  Command.withSubcommands([set, showDocs, questions, erase, removeDocs]),
)

const org = Flag.String("org").pipe(Flag.withDescription("The id of the org"), Flag.optional)

const create = Command.make(
  "create",
  { name: Argument.String("name").pipe(Argument.withDescription("The name of the project")), org },
  ({ name, org }) =>
    call(
      (gatehouse) => gatehouse.projects.create({ payload: { name, ...given({ orgId: org }) } }),
      ({ orgId, projectId }) => ({
        out: projectId,
        note: `The project is created in the org ${orgId}. To create a key: gatehouse keys create ci --project ${projectId}`,
      }),
    ),
).pipe(
  Command.withDescription("Create a project, in the default org unless --org is set"),
  Command.withExamples([{ command: "gatehouse projects create docs" }]),
)

const repositoryOf = ({ hostOwner, hostRepo }: Project) => (hostOwner === null ? null : `${hostOwner}/${hostRepo}`)

const headings = ["PROJECT", "NAME", "REPOSITORY", "BRANCH", "CURRENT DEPLOYMENT", "ORG"]
const rowOf = (project: Project) => [
  project.projectId,
  project.name,
  repositoryOf(project),
  project.defaultBranch,
  project.currentDeploymentId,
  project.orgId,
]

const list = Command.make("list", { org, ...page }, ({ org, ...page }) =>
  callPages(
    page,
    (gatehouse, query) => gatehouse.projects.list({ query: { ...query, ...given({ orgId: org }) } }),
    ({ projects }) => table(headings, projects.map(rowOf)),
  ),
).pipe(Command.withDescription("List projects, oldest first"))

const show = Command.make("get", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.projects.get({ params: { projectId: project } }),
    (found) => ({ out: table(headings, [rowOf(found)]), note: undefined }),
  ),
).pipe(Command.withDescription("Show a project"))

/** Text that a flag sets, or `none` to clear the field. */
const orNone = (text: Option.Option<string>) => Option.map(text, (one) => (one === "none" ? null : one))

const update = Command.make(
  "update",
  {
    project,
    name: Flag.String("name").pipe(Flag.withDescription("The new name"), Flag.optional),
    defaultBranch: Flag.String("default-branch").pipe(
      Flag.withDescription("The branch whose deployments become current; none clears it"),
      Flag.optional,
    ),
    subdomain: Flag.String("subdomain").pipe(Flag.withDescription("A DNS label; none clears it"), Flag.optional),
    keyPrefix: Flag.String("key-prefix").pipe(
      Flag.withDescription("The prefix of new keys, such as acme_live; none: that of the org"),
      Flag.optional,
    ),
  },
  Effect.fnUntraced(function* ({ defaultBranch, keyPrefix, name, project, subdomain }) {
    const cleared = { defaultBranch: orNone(defaultBranch), subdomain: orNone(subdomain), keyPrefix: orNone(keyPrefix) }
    const payload = given({ name, ...cleared })
    if (Object.keys(payload).length === 0) {
      return yield* usage("Nothing to change: set --name, --default-branch, --subdomain or --key-prefix")
    }
    yield* call(
      (gatehouse) => gatehouse.projects.update({ params: { projectId: project }, payload }),
      (changed) => ({ out: table(headings, [rowOf(changed)]), note: "The project is changed." }),
    )
  }),
).pipe(Command.withDescription("Change a project; other fields stay"))

const remove = Command.make("delete", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.projects.remove({ params: { projectId: project } }),
    () => ({ out: project, note: "The project is deleted with its keys and deployments." }),
  ),
).pipe(Command.withDescription("Delete a project with its keys and deployments, for good"))

/** Creates, shows, lists, changes, links and deletes projects. */
export const projects = Command.make("projects").pipe(
  Command.withDescription("Projects, which have keys and deployments"),
  Command.withSubcommands([create, list, show, update, link, unlink, docs, remove]),
)

const listDeployments = Command.make(
  "list",
  {
    project,
    branch: Flag.String("branch").pipe(Flag.withDescription("Only deployments of this branch"), Flag.optional),
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
        table(
          ["DEPLOYMENT", "CURRENT", "BRANCH", "PREVIEW", "COMMIT", "PROVIDER", "RUN", "ACTOR", "CREATED"],
          deployments.map((one) => [
            one.id,
            one.id === body.currentDeploymentId ? "yes" : "no",
            one.branch,
            one.preview ? "yes" : "no",
            one.sha.slice(0, 12),
            one.provider,
            `${one.runId}.${one.runAttempt}`,
            one.actor,
            one.createdAt,
          ]),
        ),
    )
  }),
).pipe(Command.withDescription("List the deployments of a project, newest first"))

const promote = Command.make(
  "promote",
  {
    project,
    deployment: Argument.String("deployment").pipe(Argument.withDescription("The id of the deployment")),
  },
  ({ deployment, project }) =>
    call(
      (gatehouse) => gatehouse.deployments.promote({ params: { projectId: project, deploymentId: deployment } }),
      ({ currentDeploymentId, projectId }) => ({
        out: currentDeploymentId ?? "",
        note: `The deployment is current for the project ${projectId}.`,
      }),
    ),
).pipe(
  Command.withDescription("Make a deployment current: promote a preview, or roll back to an older one"),
  Command.withExamples([
    { command: "gatehouse deployments promote 01KAHBMKZ3D2X7S5QN8W4V6R9V 01KAHBMKZ3D2X7S5QN8W4V6R9T" },
  ]),
)

/** Lists and promotes deployments. */
export const deployments = Command.make("deployments").pipe(
  Command.withDescription("Deployments that CI runs have registered"),
  Command.withSubcommands([listDeployments, promote]),
)
