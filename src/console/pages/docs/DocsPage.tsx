import { useEffect, useState } from "preact/hooks"
import { GatehouseError } from "../../client/call.ts"
import { useCall, useData } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { State } from "../../components/Badge.tsx"
import { Button, buttonClass } from "../../components/Button.tsx"
import { Confirm } from "../../components/Dialog.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { useAction } from "../../components/Form.tsx"
import { Card, Empty } from "../../components/Page.tsx"
import { Skeleton } from "../../components/Skeleton.tsx"
import { toast } from "../../components/Toasts.tsx"
import { Link, orgPath } from "../../navigation/router.tsx"
import { type Project, ProjectFrame } from "../projects/ProjectFrame.tsx"
import { Assistants } from "./Assistants.tsx"
import { type Docs, isFetchedSoon, settingsOf } from "./docs.ts"
import { DocsForm } from "./DocsForm.tsx"
import { Readers } from "./Readers.tsx"
import { StoredDocs } from "./StoredDocs.tsx"

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
  const [isAsking, setAsking] = useState(false)
  const remove = async () => {
    await call("docs.remove", { projectId: project.projectId })
    toast("The documentation is removed.")
  }
  return (
    <Card title="Remove the documentation" isDangerous>
      <p>The stored pages, their settings and the questions of readers are erased. Chats must bring their own pages.</p>
      <div>
        <Button look="danger" icon="trash" onClick={() => setAsking(true)}>
          Remove documentation
        </Button>
      </div>
      {isAsking && (
        <Confirm
          title={`Remove the documentation of ${project.name}`}
          action="Remove"
          isDangerous
          typed={project.name}
          onConfirm={remove}
          onClose={() => setAsking(false)}
        >
          <p>The stored pages and the questions of readers are erased for good.</p>
        </Confirm>
      )}
    </Card>
  )
}

const Content = ({ docs, project }: DocsProps) => {
  const call = useCall()
  const may = useMay()
  const [isChanging, setChanging] = useState(false)
  const { error, isRunning, run } = useAction()
  const fetchAgain = () =>
    run(async () => {
      // Somebody else may have changed the settings since this page read them.
      const stored = await call("docs.get", { projectId: project.projectId })
      await call("docs.put", settingsOf(stored))
      toast("Gatehouse fetches the zip.")
    })
  const actions = (
    <>
      <State of={stateOf(docs)} />
      {may("docs.put") && (
        <>
          <Button isSmall icon="repeat" disabled={isRunning} onClick={fetchAgain}>
            Fetch again
          </Button>
          <Button isSmall onClick={() => setChanging(true)}>
            Change
          </Button>
        </>
      )}
    </>
  )
  return (
    <>
      <div class="grid-2">
        <Card title="Stored pages" actions={actions}>
          <ErrorBox error={error} />
          <StoredDocs docs={docs} project={project} />
          <div>
            <Link class={buttonClass()} to={orgPath(project.orgId, "/chat?pages=stored")}>
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
