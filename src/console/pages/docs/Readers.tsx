import { useState } from "preact/hooks"
import { useCall } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Button } from "../../components/Button.tsx"
import { Confirm } from "../../components/Dialog.tsx"
import { Card, Empty } from "../../components/Page.tsx"
import { toast } from "../../components/Toasts.tsx"
import type { Project } from "../projects/ProjectFrame.tsx"
import { type Docs, settingsOf } from "./docs.ts"
import { Questions } from "./Questions.tsx"

interface ReadersProps {
  readonly project: Project
  readonly docs: Docs
}

/** What readers ask, once the owner wants to know. */
export const Readers = ({ docs, project }: ReadersProps) => {
  const call = useCall()
  const may = useMay()
  const [asked, setAsked] = useState<"keep" | "erase">()
  const { projectId } = project
  const close = () => setAsked(undefined)
  const keep = async () => {
    await call("docs.put", { ...settingsOf(docs), keepQuestions: true })
    toast("Questions are kept from now on.")
  }
  const erase = async () => {
    await call("docs.eraseQuestions", { projectId })
    toast("The questions are erased.")
  }
  const eraseButton = may("docs.eraseQuestions") && (
    <Button look="danger" icon="trash" isSmall onClick={() => setAsked("erase")}>
      Erase
    </Button>
  )
  return (
    <Card title="What readers ask" isPadded={false} actions={eraseButton}>
      {!docs.keepQuestions && (
        <Empty icon="chat" title="Questions are not kept">
          <p>
            Keep what readers ask to learn which pages are missing. It is off until you want it: tell your readers
            first.
          </p>
          {may("docs.put") && <Button onClick={() => setAsked("keep")}>Keep questions</Button>}
        </Empty>
      )}
      {docs.keepQuestions && <Questions projectId={projectId} />}
      {asked === "keep" && (
        <Confirm title="Keep the questions of readers?" action="Keep questions" onConfirm={keep} onClose={close}>
          <p>
            Gatehouse keeps the text of each question that is asked with a key of this project: the newest 10,000, for
            as long as the service keeps finished work. No log has them. You can erase them at any time.
          </p>
        </Confirm>
      )}
      {asked === "erase" && (
        <Confirm
          title="Erase the questions of readers"
          action="Erase"
          isDangerous
          typed={project.name}
          onConfirm={erase}
          onClose={close}
        >
          <p>All questions of this project that are kept are erased for good.</p>
        </Confirm>
      )}
    </Card>
  )
}
