import { Effect } from "effect"
import { Argument, Command, Flag } from "effect/cli"
import type { ProjectDocs } from "../domain/docs/ProjectDocs.ts"
import { call, callPages } from "./call.ts"
import { given, page, time } from "./flags.ts"
import { table } from "./output.ts"
import { project } from "./projectLinks.ts"

const docsOutput = ({ docsZipUrl, failure, keepQuestions, public: isPublic, state, stored }: ProjectDocs) => ({
  out: table(
    ["STATE", "PAGES", "BYTES", "DEPLOYMENT", "STORED AT", "PUBLIC", "QUESTIONS", "ZIP"],
    [
      [
        state,
        stored?.pages ?? null,
        stored?.bytes ?? null,
        stored?.deploymentId ?? null,
        stored?.at ?? null,
        isPublic,
        keepQuestions ? "kept" : "not kept",
        docsZipUrl,
      ],
    ],
  ),
  note: failure === null ? "" : failure.error,
})

const set = Command.make(
  "set",
  {
    project,
    zipUrl: Argument.String("zip-url").pipe(
      Argument.withDescription("The URL of the zip; {deployment} and {sha} stand for the current deployment"),
    ),
    docsUrl: Flag.String("docs-url").pipe(
      Flag.withDescription("The address of the documentation's site, for links to its pages"),
      Flag.optional,
    ),
    public: Flag.Boolean("public").pipe(
      Flag.withDescription("Let anyone read the stored documentation"),
      Flag.withDefault(false),
    ),
    keepQuestions: Flag.Boolean("keep-questions").pipe(
      Flag.withDescription("Keep the questions of readers"),
      Flag.withDefault(false),
    ),
  },
  Effect.fnUntraced(function* ({ docsUrl, keepQuestions, project, public: isPublic, zipUrl }) {
    const payload = { docsZipUrl: zipUrl, public: isPublic, keepQuestions, ...given({ docsUrl }) }
    yield* call((gatehouse) => gatehouse.docs.put({ params: { projectId: project }, payload }), docsOutput)
  }),
).pipe(
  Command.withDescription("Store the documentation of a project, and fetch it for each new current deployment"),
  Command.withExamples([
    {
      command:
        "gatehouse projects docs set 01KAHBMKZ3D2X7S5QN8W4V6R9V https://docs.example.com/docs.zip --docs-url https://docs.example.com/ --keep-questions",
    },
  ]),
)

const show = Command.make("get", { project }, ({ project }) =>
  call((gatehouse) => gatehouse.docs.get({ params: { projectId: project } }), docsOutput),
).pipe(Command.withDescription("Show the documentation of a project, and whether it is stored"))

const remove = Command.make("delete", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.docs.remove({ params: { projectId: project } }),
    () => ({ out: project, note: "The documentation is removed, with the questions of its readers." }),
  ),
).pipe(Command.withDescription("Remove the documentation of a project and the questions of its readers, for good"))

const found = (isNotFound: boolean) => (isNotFound ? { found: false } : {})

const questions = Command.make(
  "questions",
  {
    project,
    notFound: Flag.Boolean("not-found").pipe(
      Flag.withDescription("Only questions that found nothing"),
      Flag.withDefault(false),
    ),
    mostAsked: Flag.Boolean("most-asked").pipe(
      Flag.withDescription("Count equal questions, the most asked first; takes --limit"),
      Flag.withDefault(false),
    ),
    since: time("since").pipe(Flag.withDescription("Only questions from this time on"), Flag.optional),
    until: time("until").pipe(Flag.withDescription("Only questions before this time"), Flag.optional),
    ...page,
  },
  Effect.fnUntraced(function* ({ mostAsked, notFound, project, since, until, ...page }) {
    const filter = { ...found(notFound), ...given({ since, until }) }
    const params = { projectId: project }
    if (!mostAsked) {
      return yield* callPages(
        page,
        (gatehouse, query) => gatehouse.docs.questions({ params, query: { ...query, ...filter } }),
        ({ nextCursor, questions }) => ({
          table: table(
            ["ASKED AT", "FOUND", "THUMB", "QUESTION"],
            questions.map(({ askedAt, found, question, thumb }) => [askedAt, found, thumb, question]),
          ),
          next: nextCursor,
        }),
      )
    }
    const query = { limit: page.limit, ...filter }
    return yield* call(
      (gatehouse) => gatehouse.docs.mostAsked({ params, query }),
      ({ questions }) => ({
        out: table(
          ["TIMES", "NOT FOUND", "UP", "DOWN", "QUESTION"],
          questions.map(({ notFound, question, thumbsDown, thumbsUp, times }) => [
            times,
            notFound,
            thumbsUp,
            thumbsDown,
            question,
          ]),
        ),
        note: "",
      }),
    )
  }),
).pipe(Command.withDescription("List what readers ask, newest first, or the most asked"))

const erase = Command.make("erase-questions", { project }, ({ project }) =>
  call(
    (gatehouse) => gatehouse.docs.eraseQuestions({ params: { projectId: project } }),
    () => ({ out: project, note: "The questions of the project's readers are erased." }),
  ),
).pipe(Command.withDescription("Erase what readers have asked, for good"))

/** Documentation that is stored with a project. */
export const docs = Command.make("docs").pipe(
  Command.withDescription("The documentation of a project, for chats and assistants"),
  Command.withSubcommands([set, show, questions, erase, remove]),
)
