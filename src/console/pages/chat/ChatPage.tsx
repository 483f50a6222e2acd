import { useRef, useState } from "preact/hooks"
import { useMay, useSession } from "../../client/session.tsx"
import { Badge } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { Code } from "../../components/Code.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Field, Form, Input, TextArea, useAction } from "../../components/Form.tsx"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { counted } from "../../components/numbers.ts"
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
const useChat = () => {
  const { me } = useSession()
  const [turns, setTurns] = useState<ReadonlyArray<Turn>>([])
  const { error, isRunning, run } = useAction()
  const controller = useRef<AbortController>(undefined)
  const send = (question: string, asked: Pick<Question, "docsPages" | "docsZipUrl" | "key">) =>
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
  readonly docs: string
  readonly setDocs: (docs: string) => void
  readonly zip: string
  readonly setZip: (zip: string) => void
}

/** What is asked: pages of the reader's own, or those that are stored with a project. */
const Pages = ({ docs, isStored, setDocs, setZip, zip }: PagesProps) =>
  isStored ? (
    <p>
      The pages that are stored with the project of the key answer, as on your site. Questions are kept if the project
      keeps them.
    </p>
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

const kinds = [
  { value: "own", label: "Your own" },
  { value: "stored", label: "Stored" },
] as const

/** A playground for the chat over documentation: pages, questions, and what was found and quoted. */
export default () => {
  const may = useMay()
  const { me } = useSession()
  const [kind, setKind] = useSearch("pages")
  const isStored = kind === "stored"
  // Stored documentation belongs to a project: in open mode, too, its key says which.
  const needsKey = isStored ? me.principal !== "projectKey" : !may("chat.answer")
  const [docs, setDocs] = useState(examplePages)
  const [zip, setZip] = useState("")
  // In the memory of this page only.
  const [key, setKey] = useState("")
  const [question, setQuestion] = useState("")
  const { clear, error, isRunning, send, turns } = useChat()
  const pages = pagesOf(docs)
  const asked = {
    key: needsKey ? key.trim() : undefined,
    ...(isStored ? {} : { docsPages: pages, ...(zip.trim() === "" ? {} : { docsZipUrl: zip.trim() }) }),
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
          <Pages isStored={isStored} docs={docs} setDocs={setDocs} zip={zip} setZip={setZip} />
          {needsKey && (
            <Field
              label="Project key"
              hint={`${isStored ? "A key of the project whose pages are asked" : "The chat needs the key of a project"}. This page keeps it in its memory until you leave.`}
            >
              <Input type="password" value={key} onInput={setKey} placeholder="svc_…" autocomplete="off" />
            </Field>
          )}
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
            isReady={question.trim() !== "" && !isRunning && (!needsKey || key.trim() !== "")}
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

/** An answer, with what was found and quoted. */
export const Answer = ({ answer }: { readonly answer: ChatAnswer }) => (
  <div class="stack">
    {answer.text.trim() !== "" && <p class="answer">{answer.text.trim()}</p>}
    {answer.error !== undefined && <ErrorBox error={new Error(answer.error)} />}
    {answer.tools.map(({ id, input, name, output }) => (
      <details key={id}>
        <summary>
          Used {name} with {JSON.stringify(input).slice(0, 80)}
        </summary>
        <Code title="Found" text={typeof output === "string" ? output : JSON.stringify(output ?? null, null, 2)} />
      </details>
    ))}
    {answer.sources.length > 0 && (
      <div class="stack tight">
        <h3>Found and quoted</h3>
        <ul class="stack tight">
          {answer.sources.map(({ id, place, quotation, title }) => (
            <li key={id} class="source">
              <div class="row">
                <Badge isPlain>{place}</Badge>
                <span>{title}</span>
              </div>
              {quotation !== undefined && <blockquote>{quotation}</blockquote>}
            </li>
          ))}
        </ul>
      </div>
    )}
  </div>
)
