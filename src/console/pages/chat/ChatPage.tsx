import { useEffect, useRef, useState } from "preact/hooks"
import { useAll } from "../../client/queries.ts"
import { useMay, useSession } from "../../client/session.tsx"
import { Badge } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { JsonText } from "../../components/Code.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Field, Form, Input, Select, TextArea, useAction } from "../../components/Form.tsx"
import { Markdown } from "../../components/Markdown.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { counted } from "../../components/numbers.ts"
import { useOrg } from "../../navigation/org.ts"
import { useSearch } from "../../navigation/router.tsx"
import { ask, type ChatAnswer, type Message, pagesOf, type Question } from "./chat.ts"

const examplePages = `--- guides/keys
# Keys

A key is rotated by making a new one with an overlap. During the overlap both keys are valid.

--- guides/webhooks
# Webhooks

A delivery that fails is retried for three days. The receiver gets the same webhook-id each time.
`

interface Turn {
  readonly question: string
  readonly answer: ChatAnswer | undefined
}

const messagesOf = (turns: ReadonlyArray<Turn>, question: string): ReadonlyArray<Message> => [
  ...turns.flatMap(({ answer, question }) => [
    { role: "user" as const, content: question },
    ...(answer === undefined || answer.text === "" ? [] : [{ role: "assistant" as const, content: answer.text }]),
  ]),
  { role: "user", content: question },
]

/** The conversation, in the memory of this page. */
const useChat = (onFailure: (question: string) => void) => {
  const { me } = useSession()
  const [turns, setTurns] = useState<ReadonlyArray<Turn>>([])
  const { error, isRunning, run } = useAction()
  const controller = useRef<AbortController>(undefined)
  const send = (question: string, asked: Pick<Question, "docsPages" | "docsZipUrl" | "projectId">) =>
    run(async () => {
      controller.current = new AbortController()
      setTurns([...turns, { question, answer: undefined }])
      try {
        await ask(
          {
            messages: messagesOf(turns, question),
            ...asked,
            csrfToken: me.csrfToken,
            signal: controller.current.signal,
          },
          (answer) => setTurns([...turns, { question, answer }]),
        )
      } catch (error) {
        setTurns(turns)
        onFailure(question)
        throw error
      }
    })
  return { turns, send, error, isRunning, clear: () => setTurns([]) }
}

const NoTurns = ({ isStored }: { readonly isStored: boolean }) => (
  <Empty icon="chat" title="Ask something that the pages answer">
    <p>
      Without a model, the answer quotes the best passages. Nothing is made up
      {isStored ? "." : ", and nothing of this page is stored."}
    </p>
  </Empty>
)

interface PagesProps {
  readonly isStored: boolean
  readonly project: string | undefined
  readonly setProject: (id: string) => void
  readonly docs: string
  readonly setDocs: (docs: string) => void
  readonly zip: string
  readonly setZip: (zip: string) => void
}

/** The projects of the org, to ask the pages of one. */
const ChooseProject = ({ project, setProject }: Pick<PagesProps, "project" | "setProject">) => {
  const orgId = useOrg()
  const { error, refetch, rows } = useAll("projects.list", { orgId, limit: 100 }, (all) => all.projects)
  const projects = rows ?? []
  useEffect(() => {
    if (project === undefined && projects[0] !== undefined) setProject(projects[0].projectId)
  }, [rows])
  if (error !== null) return <ErrorBox error={error} onRetry={refetch} />
  if (rows !== undefined && projects.length === 0) return <p>This org has no project yet, and so no stored pages.</p>
  return (
    <Field label="Project" hint="What you ask here is not among the questions of its readers.">
      <Select
        value={project ?? ""}
        onInput={setProject}
        options={projects.map(({ name, projectId }) => ({ value: projectId, label: name }))}
      />
    </Field>
  )
}

/** What is asked: pages of the reader's own, or those that are stored with a project. */
const Pages = ({ docs, isStored, project, setDocs, setProject, setZip, zip }: PagesProps) => {
  const may = useMay()
  return isStored ? (
    <>
      <p>The pages that are stored with a project answer, as on your site.</p>
      {may("projects.list") && <ChooseProject project={project} setProject={setProject} />}
    </>
  ) : (
    <>
      <Field label="Markdown" hint="Each page begins with a line: --- and its slug.">
        <TextArea class="input tall" value={docs} onInput={setDocs} spellcheck={false} />
      </Field>
      <Field label="URL of a zip" hint="Optional: .md and .mdx files. Pages above replace those with the same slug.">
        <Input
          type="url"
          value={zip}
          onInput={setZip}
          placeholder="https://docs.example.com/docs.zip"
          autocomplete="off"
        />
      </Field>
    </>
  )
}

const kinds = [
  { value: "own", label: "Your own" },
  { value: "stored", label: "Stored" },
] as const

/** A playground for the chat over documentation: pages, questions, and what was found and quoted. */
export default () => {
  const { me } = useSession()
  const [kind, setKind] = useSearch("pages")
  const [project, setProject] = useSearch("project")
  const isStored = kind === "stored"
  const isReady = !isStored || project !== undefined || me.principal === "projectKey"
  const [docs, setDocs] = useState(examplePages)
  const [zip, setZip] = useState("")
  const [question, setQuestion] = useState("")
  const { clear, error, isRunning, send, turns } = useChat((asked) => setQuestion((typed) => typed || asked))
  const pages = pagesOf(docs)
  const asked = {
    ...(isStored
      ? project === undefined
        ? {}
        : { projectId: project }
      : { docsPages: pages, ...(zip.trim() === "" ? {} : { docsZipUrl: zip.trim() }) }),
  }
  return (
    <Page
      title="Chat playground"
      intro="Try the chat over documentation, as POST /api/svc/chat answers it: over pages of your own, or over those of a project."
      actions={turns.length > 0 && <Button onClick={clear}>New chat</Button>}
    >
      <div class="grid-2">
        <Card
          title="Pages"
          actions={
            <>
              {!isStored && <span class="quiet small">{counted(Object.keys(pages).length, "page")}</span>}
              <Segments
                label="Pages to ask"
                value={isStored ? "stored" : "own"}
                options={kinds}
                onChange={(kind) => setKind(kind === "own" ? undefined : kind)}
              />
            </>
          }
        >
          <Pages
            isStored={isStored}
            project={project}
            setProject={setProject}
            docs={docs}
            setDocs={setDocs}
            zip={zip}
            setZip={setZip}
          />
        </Card>
        <Card title="Chat">
          <div class="turns" aria-live="polite">
            {turns.length === 0 && <NoTurns isStored={isStored} />}
            {turns.map(({ answer, question }, i) => (
              <div key={i} class="stack">
                <p class="question">{question}</p>
                {answer === undefined ? <span class="skeleton w-70" /> : <Answer answer={answer} />}
              </div>
            ))}
          </div>
          <ErrorBox error={error} />
          <Form
            submit="Ask"
            isReady={question.trim() !== "" && !isRunning && isReady}
            onSubmit={async () => {
              setQuestion("")
              await send(question.trim(), asked)
            }}
          >
            <Field label="Question">
              <Input value={question} onInput={setQuestion} placeholder="How do I rotate a key?" autocomplete="off" />
            </Field>
          </Form>
        </Card>
      </div>
    </Page>
  )
}

/** Whether an answer has a quotation already, as it does without a model. */
const isIn = (text: string, quotation: string) => text.includes(quotation.split("\n", 1)[0]!.slice(0, 80))

/** An answer, with what was found and quoted. */
export const Answer = ({ answer }: { readonly answer: ChatAnswer }) => (
  <div class="stack">
    {answer.text.trim() !== "" && <Markdown text={answer.text.trim()} />}
    {answer.error !== undefined && <ErrorBox error={new Error(answer.error)} />}
    {answer.tools.map(({ id, input, name, output }) => (
      <details key={id}>
        <summary>
          {name === "search_docs" ? "Searched" : `Used ${name} with`} {JSON.stringify(input).slice(0, 80)}
          {Array.isArray(output) && output.length === 0 && ": nothing found"}
        </summary>
        <JsonText title="Found" text={typeof output === "string" ? output : JSON.stringify(output ?? null)} />
      </details>
    ))}
    {answer.sources.length > 0 && (
      <div class="stack tight">
        <h3>Found and quoted</h3>
        <ul class="stack tight">
          {answer.sources.map(({ id, place, quotation, title }) => (
            <li key={id} class="source stack tight">
              <div class="row">
                <Badge isPlain>{place}</Badge>
                <span>{title}</span>
              </div>
              {quotation !== undefined && !isIn(answer.text, quotation) && <blockquote>{quotation}</blockquote>}
            </li>
          ))}
        </ul>
      </div>
    )}
  </div>
)
