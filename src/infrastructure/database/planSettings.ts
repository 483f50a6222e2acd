/**
 * PostgreSQL plans each statement once. A sequential scan that was planned for a small table would still be used after
 * the table has grown, and a bitmap scan with a sort reads all matching rows to return the first few: both are off, and
 * a plan is made for all parameters. Without any of these three, `StatementPlans`, `BoundedReads` or `ClaimPlan` fail.
 * The compiler is off, too: it takes half a second or more for a plan with a high cost, which a sequential scan has
 * when nothing else is possible.
 */
export const planSettings = {
  enable_seqscan: "off",
  enable_bitmapscan: "off",
  jit: "off",
  plan_cache_mode: "force_generic_plan",
}
