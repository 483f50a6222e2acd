import type { ResponseBody } from "../../client/Operations.ts"
import { GatehouseError } from "../../client/call.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { AskButton, DangerCard } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { optional, text, useFields } from "../../components/Fields.tsx"
import { Form } from "../../components/Form.tsx"
import { Card } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Table.tsx"
import { navigate, orgPath } from "../../navigation/router.tsx"
import { type Project, ProjectFrame } from "./ProjectFrame.tsx"

interface ProjectProps {
  readonly project: Project
}

const general = {
  name: { ...text, label: "Name", required: true, maxLength: 255 },
  defaultBranch: {
    ...optional,
    label: "Default branch",
    hint: "Only deployments of this branch become current. Empty: none does.",
  },
  subdomain: { ...optional, label: "Subdomain", hint: "Lower-case letters, digits and hyphens." },
  keyPrefix: {
    ...optional,
    label: "Prefix of new keys",
    hint: "Such as acme_live. Empty: that of the org.",
    maxLength: 24,
  },
}

const General = ({ project }: ProjectProps) => {
  const call = useCall()
  const { changes, fields } = useFields(general, project)
  const save = () =>
    call("projects.update", { projectId: project.projectId, ...changes }, { said: "The project is saved." })
  return (
    <Form submit="Save" isReady={Object.keys(changes).length > 0} onSubmit={save}>
      {fields("name", "defaultBranch", "subdomain", "keyPrefix")}
    </Form>
  )
}

const DeleteProject = ({ project }: ProjectProps) => {
  const call = useCall(() => navigate(orgPath(project.orgId, "/projects")))
  return (
    <DangerCard
      title="Delete this project"
      action="Delete project"
      name={project.name}
      warning="The project, its keys and its deployments are deleted for good."
      onConfirm={() =>
        call("projects.remove", { projectId: project.projectId }, { said: `${project.name} is deleted.` })
      }
    >
      Its keys are refused at once, and its deployments are erased. Its subdomain and repository are free again.
    </DangerCard>
  )
}

const Settings = ({ project }: ProjectProps) => {
  const may = useMay()
  return (
    <>
      <div class="grid-2">
        <Card title="General">
          <General project={project} />
        </Card>
        {may("projects.putLink") && (
          <Card title="Repository">
            <RepositoryLink projectId={project.projectId} />
          </Card>
        )}
      </div>
      {may("projects.remove") && <DeleteProject project={project} />}
    </>
  )
}

export default () => <ProjectFrame>{(project) => <Settings project={project} />}</ProjectFrame>

type Link = ResponseBody<"projects.getLink">

const repository = {
  provider: {
    ...text,
    label: "CI provider",
    hint: "github, or the name of a provider of OIDC_PROVIDERS.",
    required: true,
    placeholder: "github",
  },
  hostOwner: { ...text, label: "Owner", required: true, placeholder: "acme", spellcheck: false },
  hostRepo: { ...text, label: "Repository", required: true, placeholder: "docs", spellcheck: false },
  workflow: {
    ...optional,
    label: "Only this workflow",
    hint: "Runs of another workflow are previews. Empty: any.",
    placeholder: ".github/workflows/deploy.yml",
    spellcheck: false,
  },
  environment: {
    ...optional,
    label: "Only this environment",
    hint: "Runs in another environment are previews. Empty: any.",
    placeholder: "production",
    spellcheck: false,
  },
}

const LinkForm = ({ link, projectId }: { readonly projectId: string; readonly link: Link | undefined }) => {
  const call = useCall()
  const { fields, values } = useFields(repository, { provider: "github", ...link })
  const save = () => call("projects.putLink", { projectId, ...values }, { said: "The repository is linked." })
  const unlink = () => call("projects.removeLink", { projectId }, { said: "The repository is unlinked." })
  return (
    <>
      <Form submit={link === undefined ? "Link" : "Save the link"} onSubmit={save}>
        {fields("provider")}
        <div class="grid-2">{fields("hostOwner", "hostRepo")}</div>
        {fields("workflow", "environment")}
      </Form>
      {link !== undefined && (
        <div>
          <AskButton
            look="danger"
            text="Unlink the repository"
            isDangerous
            title="Unlink the repository?"
            submit="Unlink"
            onConfirm={unlink}
          >
            <p>Runs of the repository no longer register in this project. Deployments stay.</p>
          </AskButton>
        </div>
      )}
    </>
  )
}

/** The repository whose CI registers deployments of a project, with its pins. */
const RepositoryLink = ({ projectId }: { readonly projectId: string }) => {
  const { data, error, refetch } = useData("projects.getLink", { projectId })
  const isUnlinked = error instanceof GatehouseError && error.status === 404
  if (data === undefined && error === null) return <Skeleton lines={4} />
  if (error !== null && !isUnlinked) return <ErrorBox error={error} onRetry={refetch} />
  const link = isUnlinked ? undefined : data
  return <LinkForm projectId={projectId} link={link} />
}
