import { useRef, useState } from "preact/hooks"
import { Badge } from "../../components/Badge.tsx"
import { Button } from "../../components/Button.tsx"
import { Code } from "../../components/Code.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import { Field, Form, Input, TextArea, useAction } from "../../components/Form.tsx"
import { counted } from "../../components/numbers.ts"
import { Card, Empty, Page } from "../../components/Page.tsx"
import { useMay, useSession } from "../../client/session.tsx"
import { ask, type ChatAnswer, type Message, pagesOf } from "./chat.ts"

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

const Answer = ({ answer }: { readonly answer: ChatAnswer }) => (
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

const messagesOf = (turns: ReadonlyArray<Turn>, question: string): ReadonlyArray<Message> => [
  ...turns.flatMap(({ answer, question }) => [
    { role: "user" as const, content: question },
    ...(answer === undefined || answer.text === "" ? [] : [{ role: "assistant" as const, content: answer.text }]),
  ]),
  { role: "user", content: question },
]

/** The conversation, and what it was asked with. Nothing of it is stored. */
const useChat = () => {
  const { me } = useSession()
  const [turns, setTurns] = useState<ReadonlyArray<Turn>>([])
  const { error, isRunning, run } = useAction()
  const controller = useRef<AbortController>(undefined)
  const send = (question: string, docs: string, docsZipUrl: string, key: string | undefined) =>
    run(async () => {
      controller.current = new AbortController()
      setTurns([...turns, { question, answer: undefined }])
      try {
        await ask(
          {
            messages: messagesOf(turns, question),
            docsPages: pagesOf(docs),
            docsZipUrl,
            key,
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

const NoTurns = () => (
  <Empty icon="chat" title="Ask something that the pages answer">
    <p>Without a model, the answer quotes the best passages. Nothing is made up, and nothing of this page is stored.</p>
  </Empty>
)

/** A playground for the chat over documentation: pages, questions, and what was found and quoted. */
export default () => {
  const may = useMay()
  const needsKey = !may("chat.answer")
  const [docs, setDocs] = useState(examplePages)
  const [zip, setZip] = useState("")
  // In the memory of this page only.
  const [key, setKey] = useState("")
  const [question, setQuestion] = useState("")
  const { clear, error, isRunning, send, turns } = useChat()
  const pages = Object.keys(pagesOf(docs))
  return (
    <Page
      title="Chat playground"
      intro="Try the chat over documentation with pages of your own, as POST /api/svc/chat answers it."
      actions={turns.length > 0 && <Button onClick={clear}>New chat</Button>}
    >
      <div class="grid-2">
        <Card title="Pages" actions={<span class="quiet small">{counted(pages.length, "page")}</span>}>
          <Field label="Markdown" hint="Each page begins with a line: --- and its slug.">
            <TextArea class="input tall" value={docs} onInput={setDocs} spellcheck={false} />
          </Field>
          <Field
            label="URL of a zip"
            hint="Optional: .md and .mdx files. Pages above replace those with the same slug."
          >
            <Input
              type="url"
              value={zip}
              onInput={setZip}
              placeholder="https://docs.example.com/docs.zip"
              autocomplete="off"
            />
          </Field>
          {needsKey && (
            <Field
              label="Project key"
              hint="The chat needs the key of a project. This page keeps it in its memory until you leave."
            >
              <Input type="password" value={key} onInput={setKey} placeholder="svc_…" autocomplete="off" />
            </Field>
          )}
        </Card>
        <Card title="Chat">
          <div class="turns" aria-live="polite">
            {turns.length === 0 && <NoTurns />}
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
              await send(question.trim(), docs, zip.trim(), needsKey ? key.trim() : undefined)
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
