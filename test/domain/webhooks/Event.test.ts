import { assert, describe, it } from "@effect/vitest"
import { jobEventBody, jobEventType } from "#src/domain/webhooks/Event.ts"

describe("jobEventBody", () => {
  const job = { job_id: "j", workflow: "w", deployment_id: null, error: null, mapped_stack: null }

  it("has the nine fields in order, null where empty", () => {
    const completed = { ...job, status: "completed", result: null } as const
    assert.strictEqual(
      jobEventBody(completed, "n"),
      '{"event":"job.completed","job_id":"j","nonce":"n","workflow":"w","deployment_id":null,"status":"completed","result":null,"error":null,"mapped_stack":null}',
    )
    assert.strictEqual(
      jobEventBody({ ...completed, result: undefined, mapped_stack: undefined }, "n"),
      jobEventBody(completed, "n"),
    )
    const failed = {
      ...job,
      status: "failed",
      result: null,
      deployment_id: "d",
      error: "boom",
      mapped_stack: [1],
    } as const
    assert.strictEqual(
      jobEventBody(failed, "n"),
      '{"event":"job.failed","job_id":"j","nonce":"n","workflow":"w","deployment_id":"d","status":"failed","result":null,"error":"boom","mapped_stack":[1]}',
    )
  })

  it.each([0, false, "", [], {}, "\u0000", "\ud800", { deep: [{ "\udc00": null }] }])(
    "keeps the result %j",
    (result) => {
      const body = jobEventBody({ ...job, status: "completed", result }, "n")
      assert.deepStrictEqual(JSON.parse(body).result, result)
      // The signed bytes are those that are sent: the text has one form in UTF-8.
      assert.isTrue(body.isWellFormed() && !body.includes("\0"))
    },
  )

  it("has the event type of the job's status", () => {
    assert.deepStrictEqual([jobEventType("completed"), jobEventType("failed")], ["job.completed", "job.failed"])
  })
})
