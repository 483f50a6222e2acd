import { useState } from "preact/hooks"
import { GatehouseError } from "../../client/call.ts"
import type { Answer } from "../../client/Operations.ts"
import { useCall, useData } from "../../client/queries.ts"
import { Button } from "../../components/Button.tsx"
import { Confirm } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Field, Form, Input } from "../../components/Form.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { toast } from "../../components/Toasts.tsx"

type Link = Answer<"projects.getLink">
const none: Link = { provider: "github", hostOwner: "", hostRepo: "", workflow: null, environment: null }

const LinkForm = ({ link, projectId }: { readonly projectId: string; readonly link: Link | undefined }) => {
  const call = useCall()
  const [fields, setFields] = useState(link ?? none)
  const [isUnlinking, setUnlinking] = useState(false)
  const set = (name: keyof Link) => (text: string) => setFields({ ...fields, [name]: text })
  const orNull = (text: string | null) => (text === null || text.trim() === "" ? null : text.trim())
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
          <Button look="danger" onClick={() => setUnlinking(true)}>
            Unlink the repository
          </Button>
        </div>
      )}
      {isUnlinking && (
        <Confirm
          title="Unlink the repository?"
          action="Unlink"
          isDangerous
          onConfirm={unlink}
          onClose={() => setUnlinking(false)}
        >
          <p>Runs of the repository no longer register in this project. Deployments stay.</p>
        </Confirm>
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
