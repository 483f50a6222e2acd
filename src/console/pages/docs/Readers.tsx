import { useMemo } from "preact/hooks"
import type { ResponseBody } from "../../client/Operations.ts"
import { useCall, useData, usePages } from "../../client/queries.ts"
import { useMay } from "../../client/session.tsx"
import { Badge } from "../../components/Badge.tsx"
import { AskButton, DeleteButton } from "../../components/Dialog.tsx"
import { Card, Empty } from "../../components/Page.tsx"
import { type Column, Table } from "../../components/Table.tsx"
import { Segments } from "../../components/Tabs.tsx"
import { ago, Time } from "../../components/Time.tsx"
import { numberText } from "../../components/numbers.ts"
import { useChoice } from "../../navigation/router.tsx"
import type { Project } from "../projects/ProjectFrame.tsx"
import { type Docs, settingsOf } from "./docs.ts"

interface ReadersProps {
  readonly project: Project
  readonly docs: Docs
}

/** What readers ask, if the owner keeps questions. */
export const Readers = ({ docs, project }: ReadersProps) => {
  const call = useCall()
  const may = useMay()
  const { projectId } = project
  const keep = () =>
    call("docs.put", { ...settingsOf(docs), keepQuestions: true }, { said: "Questions are kept from now on." })
  const erase = () => call("docs.eraseQuestions", { projectId }, { said: "The questions are erased." })
  const eraseButton = may("docs.eraseQuestions") && (
    <DeleteButton
      isSmall
      text="Erase"
      title="Erase the questions of readers"
      submit="Erase"
      typed={project.name}
      onConfirm={erase}
    >
      <p>All questions of this project that are kept are erased for good.</p>
    </DeleteButton>
  )
  return (
    <Card title="What readers ask" isPadded={false} actions={eraseButton}>
      {!docs.keepQuestions && (
        <Empty icon="chat" title="Questions are not kept">
          <p>
            Keep what readers ask to learn which pages are missing. It is off until you want it: tell your readers
            first.
          </p>
          {may("docs.put") && (
            <AskButton
              text="Keep questions"
              title="Keep the questions of readers?"
              submit="Keep questions"
              onConfirm={keep}
            >
              <p>
                Gatehouse keeps the text of each question that is asked with a key of this project: the newest 10,000,
                for as long as the service keeps finished work. No log has them. You can erase them at any time.
              </p>
            </AskButton>
          )}
        </Empty>
      )}
      {docs.keepQuestions && <Questions projectId={projectId} />}
    </Card>
  )
}

const views = [
  { value: "unanswered", label: "Found nothing" },
  { value: "asked", label: "Most asked" },
  { value: "down", label: "Not helpful" },
  { value: "up", label: "Helpful" },
  { value: "all", label: "All" },
] as const
const ranges = [
  { value: "1", label: "Last 24 hours" },
  { value: "7", label: "Last 7 days" },
  { value: "30", label: "Last 30 days" },
  { value: "all", label: "Any time" },
] as const
type View = (typeof views)[number]["value"]
type Range = (typeof ranges)[number]["value"]

const dayMillis = 86_400_000
const topics = 50
const refetchMillis = 15_000

type Topic = ResponseBody<"docs.mostAsked">["questions"][number]
type Question = ResponseBody<"docs.questions">["questions"][number]
type Since = { readonly since?: string }

const text = {
  title: "Question",
  cell: ({ question }: { readonly question: string }) => <span class="anywhere">{question}</span>,
}

const topicColumns: ReadonlyArray<Column<Topic>> = [
  text,
  { title: "Times", align: "end", cell: ({ times }) => numberText(times) },
  { title: "Found nothing", align: "end", cell: ({ notFound }) => numberText(notFound) },
  { title: "Helpful", align: "end", cell: ({ thumbsUp }) => numberText(thumbsUp) },
  { title: "Not helpful", align: "end", cell: ({ thumbsDown }) => numberText(thumbsDown) },
  { title: "Last asked", align: "fit", cell: ({ lastAskedAt }) => <Time at={lastAskedAt} isRelative /> },
]

/** An answer without a source has hardly any feedback. */
const unansweredColumns = topicColumns.filter(({ title }) => ["Question", "Times", "Last asked"].includes(title))

const questionColumns: ReadonlyArray<Column<Question>> = [
  text,
  {
    title: "Answer",
    align: "fit",
    cell: ({ found }) => (found ? <Badge tone="good">Has a source</Badge> : <Badge tone="warn">Found nothing</Badge>),
  },
  {
    title: "Feedback",
    align: "fit",
    cell: ({ thumb }) =>
      thumb === null ? <span class="quiet">none</span> : thumb === "up" ? "Helpful" : "Not helpful",
  },
  { title: "Asked", align: "fit", cell: ({ askedAt }) => <Time at={askedAt} isRelative /> },
]

/** Why a view has no row, and what to do. */
const empties: Record<View, readonly [title: string, text: string]> = {
  unanswered: [
    "Every question found something",
    "A question that finds nothing in the pages comes here. Write a page that answers it.",
  ],
  asked: ["Nobody has asked anything", "Connect the chat of your site, with a key of this project."],
  down: ["No answer was rated not helpful", "Your site sends feedback by POST /api/svc/chat/feedback."],
  up: ["No answer was rated helpful", "Your site sends feedback by POST /api/svc/chat/feedback."],
  all: ["Nobody has asked anything", "Connect the chat of your site, with a key of this project."],
}

const Nothing = ({ isBounded, view }: { readonly view: View; readonly isBounded: boolean }) => (
  <Empty icon="chat" title={`${empties[view][0]}${isBounded ? " in this time" : ""}`}>
    <p>{empties[view][1]}</p>
  </Empty>
)

interface ListProps {
  readonly projectId: string
  readonly range: Since
  readonly view: View
}

/** Questions that are equal but for case and punctuation, counted. */
const Topics = ({ projectId, range, view }: ListProps) => {
  const args = { projectId, limit: topics, ...range, ...(view === "unanswered" ? { found: false } : {}) }
  const { data, error, refetch } = useData("docs.mostAsked", args, { refetchMillis, keepsPrevious: true })
  return (
    <Table
      caption={view === "unanswered" ? "Questions that found nothing" : "Questions, the most asked first"}
      rows={data?.questions}
      error={error}
      refetch={refetch}
      rowKey={({ lastAskedAt, question }) => `${question} ${lastAskedAt}`}
      empty={<Nothing view={view} isBounded={range.since !== undefined} />}
      columns={view === "unanswered" ? unansweredColumns : topicColumns}
    />
  )
}

/** Single questions, newest first. */
const List = ({ projectId, range, view }: ListProps) => {
  const pages = usePages(
    "docs.questions",
    { projectId, limit: 50, ...range, ...(view === "up" || view === "down" ? { thumb: view } : {}) },
    ({ questions }) => questions,
    { refetchMillis, keepsPrevious: true },
  )
  return (
    <Table
      caption="Questions"
      {...pages}
      rowKey={({ id }) => id}
      empty={<Nothing view={view} isBounded={range.since !== undefined} />}
      columns={questionColumns}
    />
  )
}

/** What readers have asked in a range of time: what found nothing, what is asked most, and what they say of answers. */
const Questions = ({ projectId }: { readonly projectId: string }) => {
  const [view, setView] = useChoice<View>("view", views, "unanswered")
  const [days, setDays] = useChoice<Range>("days", ranges, "30")
  const range = useMemo((): Since => (days === "all" ? {} : { since: ago(Number(days) * dayMillis) }), [days])
  const props = { projectId, range, view }
  return (
    <>
      <div class="card-tools">
        <Segments label="Questions" value={view} options={views} onChange={setView} />
        <Segments label="Range" value={days} options={ranges} onChange={setDays} />
      </div>
      {view === "unanswered" || view === "asked" ? <Topics key={view} {...props} /> : <List key={view} {...props} />}
    </>
  )
}
