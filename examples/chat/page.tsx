// A chat on a documentation page: useChat of the AI SDK, with a path of the site's own server.
import { useChat } from "@ai-sdk/react"
import { DefaultChatTransport } from "ai"
import { Markdown } from "markdown-to-jsx"
import { type FormEvent, useEffect, useRef, useState } from "react"
import { createRoot } from "react-dom/client"

// The slug of the page that the reader is on.
const pageSlug = location.pathname.slice(1)
const transport = new DefaultChatTransport({ api: "/api/chat", body: { pageSlug, docsUrl: location.origin } })

const samples = ["How do I rotate a key?", "How do I verify a webhook?", "What does this page say?"]

// The text of documentation and models is never trusted as HTML.
// Code that is too wide scrolls, also with the keyboard.
const markdown = {
  disableParsingRawHTML: true,
  overrides: { pre: { props: { tabIndex: 0, role: "region", "aria-label": "Code" } } },
}

const Chat = () => {
  const { messages, sendMessage, status, stop, error } = useChat({ transport })
  const [input, setInput] = useState("")
  const busy = status === "submitted" || status === "streaming"
  const newest = useRef<HTMLParagraphElement>(null)
  // The newest words stay in view above the question.
  useEffect(() => {
    newest.current?.scrollIntoView({ block: "nearest" })
  }, [messages, status])

  const ask = (text: string) => {
    if (text.trim() === "" || busy) return
    void sendMessage({ text })
    setInput("")
  }
  const submit = (event: FormEvent) => {
    event.preventDefault()
    ask(input)
  }

  return (
    <>
      {messages.length === 0 && (
        <ul className="samples">
          {samples.map((sample) => (
            <li key={sample}>
              <button type="button" onClick={() => ask(sample)}>
                {sample}
              </button>
            </li>
          ))}
        </ul>
      )}
      {messages.map(({ id, role, parts }) => {
        const text = parts.map((part) => (part.type === "text" ? part.text : "")).join("")
        const sources = parts.filter((part) => part.type === "source-url")
        return (
          <article key={id} data-role={role}>
            {role === "user" ? text : <Markdown options={markdown}>{text}</Markdown>}
            {sources.length > 0 && (
              <ol aria-label="Sources">
                {sources.map(({ sourceId, title, url }) => (
                  <li key={sourceId}>
                    <a href={url}>{title ?? url}</a>
                  </li>
                ))}
              </ol>
            )}
          </article>
        )
      })}
      {error && <p role="alert">{error.message}</p>}
      <p role="status" ref={newest}>
        {status === "submitted" ? "Searching the documentation…" : status === "streaming" ? "Writing…" : ""}
      </p>
      <form onSubmit={submit}>
        <input
          aria-label="Question"
          placeholder="Ask the documentation"
          value={input}
          onChange={(event) => setInput(event.target.value)}
        />
        {busy ? (
          <button type="button" onClick={() => void stop()}>
            Stop
          </button>
        ) : (
          <button type="submit">Ask</button>
        )}
      </form>
    </>
  )
}

createRoot(document.getElementById("chat")!).render(<Chat />)
