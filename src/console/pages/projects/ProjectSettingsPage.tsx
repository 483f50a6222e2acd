import { useState } from "preact/hooks"
import { useCall } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button } from "../../components/Button.tsx"
import { Confirm } from "../../components/Dialog.tsx"
import { Field, Form, Input } from "../../components/Form.tsx"
import { Card } from "../../components/Page.tsx"
import { toast } from "../../components/Toasts.tsx"
import { navigate, orgPath } from "../../navigation/router.tsx"
import { type Project, ProjectFrame } from "./ProjectFrame.tsx"
import { RepositoryLink } from "./RepositoryLink.tsx"

interface ProjectProps {
  readonly project: Project
}
const orNull = (text: string) => (text.trim() === "" ? null : text.trim())

const General = ({ project }: ProjectProps) => {
  const call = useCall()
  const [name, setName] = useState(project.name)
  const [defaultBranch, setDefaultBranch] = useState(project.defaultBranch ?? "")
  const [subdomain, setSubdomain] = useState(project.subdomain ?? "")
  const changes = {
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
    </Form>
  )
}

const DeleteProject = ({ project }: ProjectProps) => {
  const call = useCall(() => navigate(orgPath(project.orgId, "/projects")))
  const [isAsking, setAsking] = useState(false)
  const remove = async () => {
    await call("projects.remove", { projectId: project.projectId })
    toast(`${project.name} is deleted.`)
  }
  return (
    <Card title="Delete this project" isDangerous>
      <p>Its keys are refused at once, and its deployments are erased. Its subdomain and repository are free again.</p>
      <div>
        <Button look="danger" icon="trash" onClick={() => setAsking(true)}>
          Delete project
        </Button>
      </div>
      {isAsking && (
        <Confirm
          title={`Delete ${project.name}`}
          action="Delete project"
          isDangerous
          typed={project.name}
          onConfirm={remove}
          onClose={() => setAsking(false)}
        >
          <p>The project, its keys and its deployments are deleted for good.</p>
        </Confirm>
      )}
    </Card>
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
