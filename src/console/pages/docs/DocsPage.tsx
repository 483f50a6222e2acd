import { useEffect, useState } from "preact/hooks"
import { GatehouseError } from "../../client/call.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { State } from "../../components/Badge.tsx"
import { Button, buttonClass, Copyable } from "../../components/Button.tsx"
import { Code } from "../../components/Code.tsx"
import { DangerCard, FormDialog } from "../../components/Dialog.tsx"
import { ErrorBox, Notice } from "../../components/ErrorBox.tsx"
import { flag, optional, text, useFields } from "../../components/Fields.tsx"
import { ActionButton } from "../../components/Form.tsx"
import { Card, Empty, Facts } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Table.tsx"
import { Time } from "../../components/Time.tsx"
import { bytesText, counted, numberText } from "../../components/numbers.ts"
import { Link, orgPath } from "../../navigation/router.tsx"
import { shaOf } from "../projects/DeploymentEntry.tsx"
import { type Project, ProjectFrame } from "../projects/ProjectFrame.tsx"
import { Readers } from "./Readers.tsx"
import { type Docs, isFetchedSoon, settingsOf } from "./docs.ts"

/** How often the state is read, while a fetch is expected and otherwise: no live event tells of a fetch. */
const expectedMillis = 2_000
const usualMillis = 30_000

const stateOf = ({ failure, state }: Docs) => (state === "waiting" && failure !== null ? "retrying" : state)

interface DocsProps {
  readonly project: Project
  readonly docs: Docs
}

const RemoveDocs = ({ project }: { readonly project: Project }) => {
  const call = useCall()
  return (
    <DangerCard
      title="Remove the documentation"
      action="Remove documentation"
      name={project.name}
      warning="The stored pages and the questions of readers are erased for good."
      onConfirm={() => call("docs.remove", { projectId: project.projectId }, { said: "The documentation is removed." })}
    >
      The stored pages, their settings and the questions of readers are erased. Chats must bring their own pages.
    </DangerCard>
  )
}

const Content = ({ docs, project }: DocsProps) => {
  const call = useCall()
  const may = useMay()
  const [isChanging, setChanging] = useState(false)
  const fetchAgain = async () => {
    // Somebody else may have changed the settings since this page read them.
    const stored = await call("docs.get", { projectId: project.projectId })
    await call("docs.put", settingsOf(stored), { said: "Gatehouse fetches the zip." })
  }
  const actions = (
    <>
      <State of={stateOf(docs)} />
      {may("docs.put") && (
        <>
          <ActionButton isSmall icon="repeat" onPress={fetchAgain}>
            Fetch again
          </ActionButton>
          <Button isSmall onClick={() => setChanging(true)}>
            Edit
          </Button>
        </>
      )}
    </>
  )
  return (
    <>
      <div class="grid-2">
        <Card title="Stored pages" actions={actions}>
          <StoredDocs docs={docs} project={project} />
          <div>
            <Link class={buttonClass()} to={orgPath(project.orgId, `/chat?pages=stored&project=${project.projectId}`)}>
              Ask in the playground
            </Link>
          </div>
        </Card>
        <Card title="For assistants">
          <Assistants docs={docs} project={project} />
        </Card>
      </div>
      {may("docs.questions", "docs.mostAsked") && <Readers docs={docs} project={project} />}
      {may("docs.remove") && <RemoveDocs project={project} />}
      {isChanging && <DocsForm projectId={project.projectId} docs={docs} onClose={() => setChanging(false)} />}
    </>
  )
}

/** No documentation is stored: what it is for, and how to begin. */
const Nothing = ({ project }: { readonly project: Project }) => {
  const may = useMay()
  const [isAdding, setAdding] = useState(false)
  return (
    <Card isPadded={false}>
      <Empty icon="book" title="This project stores no documentation">
        <p>
          Name a zip of markdown files. Gatehouse fetches it for each current deployment, answers chats from it, and
          serves it to assistants by MCP and llms.txt.
        </p>
        {may("docs.put") && (
          <Button look="primary" icon="plus" onClick={() => setAdding(true)}>
            Store documentation
          </Button>
        )}
      </Empty>
      {isAdding && <DocsForm projectId={project.projectId} docs={undefined} onClose={() => setAdding(false)} />}
    </Card>
  )
}

const Documentation = ({ project }: { readonly project: Project }) => {
  const [isExpected, setExpected] = useState(false)
  const refetchMillis = isExpected ? expectedMillis : usualMillis
  const { data, error, refetch } = useData("docs.get", { projectId: project.projectId }, { refetchMillis })
  useEffect(() => setExpected(data !== undefined && isFetchedSoon(data, project)))
  if (error instanceof GatehouseError && error.status === 404) return <Nothing project={project} />
  if (data === undefined) return error === null ? <Skeleton lines={6} /> : <ErrorBox error={error} onRetry={refetch} />
  return <Content docs={data} project={project} />
}

export default () => <ProjectFrame>{(project) => <Documentation project={project} />}</ProjectFrame>

/** What a reader should know now, and what to do. */
const Fault = ({ docs, project }: DocsProps) => {
  const { failure, state, stored } = docs
  const old = stored === null ? "Chats have no pages of this project yet." : "Until then, chats use the pages below."
  if (failure !== null) {
    return (
      <Notice tone={failure.nextAt === null ? "bad" : "warn"}>
        <strong>The documentation could not be fetched</strong>
        <span class="anywhere">{failure.error}</span>
        <span>
          {counted(failure.attempts, "attempt")}, the last <Time at={failure.at} isRelative />.{" "}
          {failure.nextAt === null ? (
            "It is not tried again: correct the cause, then press Fetch again. "
          ) : (
            <>
              The next is <Time at={failure.nextAt} isRelative />.{" "}
            </>
          )}
          {old}
        </span>
      </Notice>
    )
  }
  if (state !== "waiting") return null
  return (
    <Notice tone="calm">
      {isFetchedSoon(docs, project)
        ? "Gatehouse fetches the zip now."
        : "The address names a deployment: the zip is fetched for the first current one."}{" "}
      {old}
    </Notice>
  )
}

/** The deployment that the pages were fetched for: its branch and commit, if it is among the newest. */
const Deployment = ({ deploymentId, project }: { readonly deploymentId: string; readonly project: Project }) => {
  const { projectId } = project
  const { data } = useData("deployments.list", { projectId, limit: 100 })
  const deployment = data?.deployments.find(({ id }) => id === deploymentId)
  return (
    <span class="row">
      <Link to={orgPath(project.orgId, `/projects/${projectId}`)}>
        {deployment === undefined ? deploymentId : `${deployment.branch} at ${shaOf(deployment)}`}
      </Link>
      {deploymentId !== project.currentDeploymentId && <span class="quiet">no longer current</span>}
    </span>
  )
}

/** Whether the documentation is stored, which one, and why not. */
const StoredDocs = ({ docs, project }: DocsProps) => {
  const may = useMay()
  const { docsUrl, docsZipUrl, keepQuestions, public: isPublic, stored } = docs
  const deploymentId = stored?.deploymentId ?? null
  return (
    <>
      <Fault docs={docs} project={project} />
      <Facts
        of={{
          Pages: stored === null ? "none yet" : numberText(stored.pages),
          Size: stored === null ? undefined : bytesText(stored.bytes),
          Fetched: stored === null ? undefined : <Time at={stored.at} isRelative />,
          Deployment:
            deploymentId === null || !may("deployments.list") ? undefined : (
              <Deployment deploymentId={deploymentId} project={project} />
            ),
          Zip: <Copyable text={docsZipUrl} label="Copy the URL of the zip" />,
          Site: docsUrl === null ? "none: sources are slugs" : <Copyable text={docsUrl} label="Copy the address" />,
          Readers: isPublic ? "anyone" : "holders of a key of the project or the org",
          Questions: keepQuestions ? "kept" : "not kept",
        }}
      />
    </>
  )
}

interface DocsFormProps {
  readonly projectId: string
  /** undefined: nothing is stored yet. */
  readonly docs: Docs | undefined
  readonly onClose: () => void
}

const settings = {
  docsZipUrl: {
    ...text,
    label: "URL of the zip",
    hint: "A zip of .md and .mdx files. {sha} and {deployment} stand for the current deployment.",
    type: "url",
    required: true,
    maxLength: 2048,
    placeholder: "https://docs.example.com/docs.zip",
    spellcheck: false,
  },
  docsUrl: {
    ...optional,
    label: "Address of the site",
    hint: "Makes the sources of answers links. Empty: sources are slugs.",
    type: "url",
    maxLength: 2048,
    placeholder: "https://docs.example.com/",
    spellcheck: false,
  },
  public: { ...flag, label: "Anyone may read the stored pages, without a key" },
  keepQuestions: { ...flag, label: "Keep the questions that readers ask. Tell your readers." },
}

/** Where the documentation of a project is, who may read it, and whether questions are kept. */
const DocsForm = ({ docs, onClose, projectId }: DocsFormProps) => {
  const call = useCall()
  const { fields, values } = useFields(settings, docs)
  const save = () =>
    call("docs.put", { projectId, ...values }, { said: "The documentation is saved. Gatehouse fetches the zip." })
  return (
    <FormDialog
      title={docs === undefined ? "Store documentation" : "Edit the documentation"}
      submit="Save and fetch"
      isReady={values.docsZipUrl !== ""}
      onSubmit={save}
      onClose={onClose}
    >
      {fields("docsZipUrl", "docsUrl", "public", "keepQuestions")}
    </FormDialog>
  )
}

/** The name of the server in an assistant's configuration: letters, digits and hyphens. */
const nameOf = ({ name }: Project) => {
  const slug = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-|-$/g, "")
  return /(^|-)docs$/.test(slug) ? slug : `${slug || "project"}-docs`
}

/** How coding assistants and other clients read the stored pages. */
const Assistants = ({ docs, project }: DocsProps) => {
  const address = `${location.origin}/api/v0/projects/${project.projectId}/docs`
  const server = {
    type: "http",
    url: `${address}/mcp`,
    ...(docs.public ? {} : { headers: { Authorization: "Bearer svc_…" } }),
  }
  return (
    <>
      <Facts
        of={{
          "MCP server": <Copyable text={`${address}/mcp`} label="Copy the address of the MCP server" />,
          "llms.txt": <Copyable text={`${address}/llms.txt`} label="Copy the address of llms.txt" />,
        }}
      />
      <Code
        title="Configuration of an MCP client"
        text={JSON.stringify({ mcpServers: { [nameOf(project)]: server } }, null, 2)}
      />
      <p class="quiet small">
        {docs.public ? (
          "Nobody needs a key: the pages are public."
        ) : (
          <>
            Put a <Link to={orgPath(project.orgId, "/keys")}>key of the project</Link> in the place of svc_…, or let
            anyone read the pages: press Edit.
          </>
        )}
        {docs.docsUrl === null && " Without an address of the site, the links are slugs."}
      </p>
    </>
  )
}
