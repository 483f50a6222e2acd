import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Documentation that is stored with a project, and the questions of its readers. A replica of the version before does not
 * know them: it erases nothing of them with a project, which the erasure of this version does in its next pass.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // Without docs_zip_url it is removed, and its rows are being erased. edition: the id of the pages that are read.
  yield* sql`
    CREATE TABLE project_docs (
      org_id text COLLATE "C" NOT NULL,
      project_id text COLLATE "C" NOT NULL,
      docs_zip_url text,
      docs_url text,
      is_public boolean NOT NULL,
      keep_questions boolean NOT NULL,
      revision integer NOT NULL,
      updated_at timestamptz NOT NULL,
      lease text COLLATE "C",
      leased_until timestamptz,
      unclean_since timestamptz,
      edition text COLLATE "C",
      digest text,
      stored_target text,
      stored_deployment_id text,
      pages integer,
      bytes bigint,
      characters bigint,
      stored_at timestamptz,
      failed_target text,
      attempts integer,
      error text,
      failed_at timestamptz,
      PRIMARY KEY (org_id, project_id)
    )`

  yield* sql`
    CREATE TABLE docs_pages (
      org_id text COLLATE "C" NOT NULL,
      project_id text COLLATE "C" NOT NULL,
      edition text COLLATE "C" NOT NULL,
      slug text COLLATE "C" NOT NULL,
      title text NOT NULL,
      description text NOT NULL,
      markdown text NOT NULL,
      PRIMARY KEY (org_id, project_id, edition, slug)
    )`

  // topic: the question without case and punctuation, by which equal questions are counted.
  yield* sql`
    CREATE TABLE docs_questions (
      org_id text COLLATE "C" NOT NULL,
      project_id text COLLATE "C" NOT NULL,
      id text COLLATE "C" NOT NULL,
      asked_at timestamptz NOT NULL,
      question text NOT NULL,
      topic text NOT NULL,
      found boolean NOT NULL,
      thumb text,
      PRIMARY KEY (org_id, project_id, id)
    )`
  yield* sql`CREATE INDEX docs_questions_by_age ON docs_questions (asked_at)`
})
