// A chat on a documentation page: useChat of the AI SDK, with a path of the site's own server.
import { useChat } from "@ai-sdk/react"
import { DefaultChatTransport } from "ai"
import { type FormEvent, useState } from "react"
import { createRoot } from "react-dom/client"

// The slug of the page that the reader is on.
const pageSlug = location.pathname.slice(1)
const transport = new DefaultChatTransport({ api: "/api/chat", body: { pageSlug } })

const Chat = () => {
  const { messages, sendMessage, status, stop, error } = useChat({ transport })
  const [input, setInput] = useState("")
  const busy = status === "submitted" || status === "streaming"

  const submit = (event: FormEvent) => {
    event.preventDefault()
    if (input.trim() === "" || busy) return
    void sendMessage({ text: input })
    setInput("")
  }

  return (
    <>
      {messages.map(({ id, role, parts }) => (
        <article key={id} data-role={role}>
          {parts.map((part) => (part.type === "text" ? part.text : "")).join("")}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form onSubmit={submit}>
        <input aria-label="Question" value={input} onChange={(event) => setInput(event.target.value)} />
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
