import { useState } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { GatehouseError } from "../../client/call.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { AskButton, DangerCard } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Field, Form, Input } from "../../components/Form.tsx"
import { Card } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Table.tsx"
import { toast } from "../../components/Toasts.tsx"
import { navigate, orgPath } from "../../navigation/router.tsx"
import { type Project, ProjectFrame } from "./ProjectFrame.tsx"

interface ProjectProps {
  readonly project: Project
}
const orNull = (text: string | null) => text?.trim() || null

const General = ({ project }: ProjectProps) => {
  const call = useCall()
  const [name, setName] = useState(project.name)
  const [defaultBranch, setDefaultBranch] = useState(project.defaultBranch ?? "")
  const [subdomain, setSubdomain] = useState(project.subdomain ?? "")
  const [keyPrefix, setKeyPrefix] = useState(project.keyPrefix ?? "")
  const changes = {
    ...(orNull(keyPrefix) === (project.keyPrefix ?? null) ? {} : { keyPrefix: orNull(keyPrefix) }),
    ...(name === project.name ? {} : { name }),
    ...(orNull(defaultBranch) === project.defaultBranch ? {} : { defaultBranch: orNull(defaultBranch) }),
    ...(orNull(subdomain) === project.subdomain ? {} : { subdomain: orNull(subdomain) }),
  }
  const save = async () => {
    await call("projects.update", { projectId: project.projectId, ...changes })
    toast("The project is saved.")
  }
  return (
    <Form submit="Save" isReady={Object.keys(changes).length > 0} onSubmit={save}>
      <Field label="Name">
        <Input name="name" value={name} onInput={setName} required maxLength={255} autocomplete="off" />
      </Field>
      <Field label="Default branch" hint="Only deployments of this branch become current. Empty: none does.">
        <Input name="defaultBranch" value={defaultBranch} onInput={setDefaultBranch} autocomplete="off" />
      </Field>
      <Field label="Subdomain" hint="Lower-case letters, digits and hyphens.">
        <Input name="subdomain" value={subdomain} onInput={setSubdomain} autocomplete="off" />
      </Field>
      <Field label="Prefix of new keys" hint="Such as acme_live. Empty: that of the org.">
        <Input name="keyPrefix" value={keyPrefix} onInput={setKeyPrefix} maxLength={24} autocomplete="off" />
      </Field>
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
      onConfirm={async () => {
        await call("projects.remove", { projectId: project.projectId })
        toast(`${project.name} is deleted.`)
      }}
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
          <General project={project} key={project.updatedAt} />
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
const none: Link = { provider: "github", hostOwner: "", hostRepo: "", workflow: null, environment: null }

const LinkForm = ({ link, projectId }: { readonly projectId: string; readonly link: Link | undefined }) => {
  const call = useCall()
  const [fields, setFields] = useState(link ?? none)
  const set = (name: keyof Link) => (text: string) => setFields({ ...fields, [name]: text })
  const save = async () => {
    const { environment, hostOwner, hostRepo, provider, workflow } = fields
    const pins = { workflow: orNull(workflow), environment: orNull(environment) }
    await call("projects.putLink", { projectId, provider, hostOwner, hostRepo, ...pins })
    toast("The repository is linked.")
  }
  const unlink = async () => {
    await call("projects.removeLink", { projectId })
    toast("The repository is unlinked.")
  }
  const input = (name: keyof Link, isRequired: boolean, placeholder: string) => (
    <Input
      name={name}
      value={fields[name] ?? ""}
      onInput={set(name)}
      required={isRequired}
      placeholder={placeholder}
      autocomplete="off"
      spellcheck={false}
    />
  )
  return (
    <>
      <Form submit={link === undefined ? "Link" : "Save the link"} onSubmit={save}>
        <Field label="CI provider" hint="github, or the name of a provider of OIDC_PROVIDERS.">
          {input("provider", true, "github")}
        </Field>
        <div class="grid-2">
          <Field label="Owner">{input("hostOwner", true, "acme")}</Field>
          <Field label="Repository">{input("hostRepo", true, "docs")}</Field>
        </div>
        <Field label="Only this workflow" hint="Runs of another workflow are previews. Empty: any.">
          {input("workflow", false, ".github/workflows/deploy.yml")}
        </Field>
        <Field label="Only this environment" hint="Runs in another environment are previews. Empty: any.">
          {input("environment", false, "production")}
        </Field>
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
export const RepositoryLink = ({ projectId }: { readonly projectId: string }) => {
  const { data, error, refetch } = useData("projects.getLink", { projectId })
  const isUnlinked = error instanceof GatehouseError && error.status === 404
  if (data === undefined && error === null) return <Skeleton lines={4} />
  if (error !== null && !isUnlinked) return <ErrorBox error={error} onRetry={refetch} />
  const link = isUnlinked ? undefined : data
  return <LinkForm key={JSON.stringify(link)} projectId={projectId} link={link} />
}
