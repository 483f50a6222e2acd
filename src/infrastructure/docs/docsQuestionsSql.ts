import { Effect, Layer, Schedule, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { DocsQuestionRepository, DocsQuestions } from "../../domain/docs/DocsQuestions.ts"
import { DocsQuestion, type QuestionFilter } from "../../domain/docs/DocsQuestion.ts"
import { afterCursor, date, decodePage, decodeRows, deleteFirst, pageOf, Time } from "../database/fragments.ts"
import { orUnavailable, orUnavailableWithin } from "../database/orUnavailable.ts"
import { eraseFrom, isOf } from "./projectDocsSql.ts"
import { hourly, logged } from "../background.ts"

const { found: _, ...fields } = DocsQuestion.fields
/** `found` is the number of rows of a page. */
const decode = decodePage(Schema.Struct({ ...fields, askedAt: Time, hasSource: Schema.Boolean }))
const decodeAsked = decodeRows(
  Schema.Struct({
    question: Schema.String,
    times: Schema.Int,
    notFound: Schema.Int,
    thumbsUp: Schema.Int,
    thumbsDown: Schema.Int,
    lastAskedAt: Time,
  }),
)

/** Questions of readers in PostgreSQL. */
export const layer = Layer.effect(
  DocsQuestionRepository,
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient

    const matches = ({ found, since, thumb, until }: QuestionFilter) => {
      const [from, to] = [since, until].map((time) => (time === undefined ? null : date(time)))
      return sql`(${found ?? null}::boolean IS NULL OR found = ${found ?? null}::boolean)
        AND (${thumb ?? null}::text IS NULL OR thumb = ${thumb ?? null}::text)
        AND (${from}::timestamptz IS NULL OR asked_at >= ${from}::timestamptz)
        AND (${to}::timestamptz IS NULL OR asked_at < ${to}::timestamptz)`
    }

    return DocsQuestionRepository.of({
      /**
       * Inserts questions, and drops the oldest ones of each of their projects. The lock lets no removal commit
       * meanwhile, whose erasure would not see them.
       */
      insert: Effect.fnUntraced(function* (questions, perProject) {
        const rows = JSON.stringify(questions.map(({ askedAt, ...row }) => ({ ...row, askedAt: date(askedAt) })))
        yield* sql`
          INSERT INTO docs_questions (org_id, project_id, id, asked_at, question, topic, found, thumb)
          SELECT d.org_id, d.project_id, id, "askedAt", question, topic, found, thumb
          FROM json_to_recordset(${rows}) AS asked (
            "orgId" text, "projectId" text, id text, "askedAt" timestamptz, question text, topic text, found boolean,
              thumb text
          ) JOIN project_docs d ON d.org_id = "orgId" AND d.project_id = "projectId"
          WHERE d.keep_questions AND d.docs_zip_url IS NOT NULL AND "askedAt" >= d.updated_at
          FOR SHARE OF d
          ON CONFLICT (org_id, project_id, id) DO UPDATE SET thumb = coalesce(excluded.thumb, docs_questions.thumb)`
        yield* sql`
          DELETE FROM docs_questions q USING (
            SELECT DISTINCT "orgId" AS org_id, "projectId" AS project_id
            FROM json_to_recordset(${rows}) AS asked ("orgId" text, "projectId" text)
          ) AS project CROSS JOIN LATERAL (
            SELECT id FROM docs_questions old
            WHERE old.org_id = project.org_id AND old.project_id = project.project_id
            ORDER BY id DESC OFFSET ${perProject} LIMIT 1
          ) AS last
          WHERE q.org_id = project.org_id AND q.project_id = project.project_id AND q.id <= last.id`
      }, orUnavailableWithin("sweep")),

      setThumb: (docs, id, thumb) =>
        sql`UPDATE docs_questions SET thumb = ${thumb} WHERE ${isOf(sql, docs)} AND id = ${id} RETURNING 1`.pipe(
          Effect.map((rows) => rows.length > 0),
          orUnavailable,
        ),

      list: (docs, page) =>
        pageOf(
          sql,
          page,
          sql`
            SELECT id, question, asked_at AS "askedAt", found AS "hasSource", thumb FROM docs_questions
            WHERE ${isOf(sql, docs)} AND ${matches(page)} AND ${afterCursor(sql, page, "newest")}`,
          "id",
          ["question"],
          "newest",
        ).pipe(
          decode,
          Effect.map(({ hasMore, items }) => ({
            hasMore,
            items: items.map(({ hasSource, ...question }) => ({ ...question, found: hasSource })),
          })),
          orUnavailable,
        ),

      mostAsked: (docs, { limit, ...filter }) =>
        sql`
          SELECT q.question, topic.* FROM (
            SELECT max(id) AS id, count(*)::int AS times, count(*) FILTER (WHERE NOT found)::int AS "notFound",
              count(*) FILTER (WHERE thumb = 'up')::int AS "thumbsUp",
              count(*) FILTER (WHERE thumb = 'down')::int AS "thumbsDown", max(asked_at) AS "lastAskedAt"
            FROM docs_questions WHERE ${isOf(sql, docs)} AND ${matches(filter)}
            GROUP BY topic ORDER BY times DESC, id DESC LIMIT ${limit}
          ) AS topic JOIN docs_questions q ON ${isOf(sql, docs)} AND q.id = topic.id
          ORDER BY topic.times DESC, topic.id DESC`.pipe(decodeAsked, orUnavailable),

      erase: (docs, now, limit) =>
        sql`UPDATE project_docs SET updated_at = ${date(now)} WHERE ${isOf(sql, docs)} AND updated_at < ${date(now)}`.pipe(
          Effect.andThen(eraseFrom(sql, "docs_questions", docs, limit)),
          orUnavailable,
        ),

      removeOld: (before, limit) =>
        orUnavailableWithin("sweep")(
          deleteFirst(
            sql,
            "docs_questions",
            sql`asked_at < ${date(before)} ORDER BY asked_at LIMIT ${limit} FOR UPDATE SKIP LOCKED`,
          ),
        ),
    })
  }),
)

/** Not the cause: a fault of a statement can name its values, which are words of readers. */
const withoutCause = () => "Its cause is left out"

/** Writes the questions of readers every second and when the process stops, and removes old ones about every hour. */
export const questionWorker = Layer.effectDiscard(
  Effect.gen(function* () {
    const { flush, removeOld } = yield* DocsQuestions
    const write = logged("Questions are not kept yet", flush, withoutCause)
    yield* Effect.addFinalizer(() => write)
    yield* Effect.forkScoped(Effect.repeat(write, Schedule.spaced("1 second")))
    yield* hourly("Old questions are not removed", removeOld, withoutCause)
  }),
)
