import { assert, it } from "@effect/vitest"
import { cronText } from "#src/console/pages/schedules/cronText.ts"

it.each([
  ["* * * * *", "every minute"],
  ["*/15 * * * *", "every 15 minutes"],
  ["0 */15 * * * *", "every 15 minutes"],
  ["*/7 * * * *", "every 7 minutes, from minute 0 of each hour"],
  ["*/45 * * * *", "every 45 minutes, from minute 0 of each hour"],
  ["59 * * * *", "every hour, at minute 59"],
  ["5 */1 * * *", "every hour, at minute 5"],
  ["5 */6 * * *", "every 6 hours, at minute 5"],
  ["5 */5 * * *", "every 5 hours, from 0:05 of each day"],
  ["30 4 * * *", "every day at 4:30"],
  ["0 9 * * 1-5", "on weekdays at 9:00"],
  ["0 9 * * MON-FRI", "on weekdays at 9:00"],
  ["0 9 * * 7", "every Sunday at 9:00"],
  ["0 9 31 * *", "on day 31 of the month at 9:00"],
])("%s is %s", (cron, words) => {
  assert.strictEqual(cronText(cron), words)
})

it.each([
  ...["61 * * * *", "60 4 * * *", "*/0 * * * *", "*/60 * * * *", "0 24 * * *", "0 */24 * * *", "0 9 * * 8"],
  ...["0 9 32 * *", "0 9 0 * *", "", "* * *", "30 * * * * *", "0 0 1 1 *", "0 9 1 * 1", "* 4 * * *", "0 9 L * *"],
])("no words stand for %j", (cron) => {
  assert.strictEqual(cronText(cron), undefined)
})
