import { Badge } from "../../components/Badge.tsx"
import { Code } from "../../components/Code.tsx"
import { ErrorBox } from "../../components/ErrorBox.tsx"
import type { ChatAnswer } from "./chat.ts"

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
